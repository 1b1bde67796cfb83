package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
)

const (
	// maxAnswerBytes limits the size of an answer to a call. The largest answers are those to the
	// questions of a RemoteBatch: up to 5000 questions, each of which may be answered with about
	// 100 pins of about 100 bytes. A smaller answer is still refused if the budget of bytes
	// (--memory) has no memory for it.
	maxAnswerBytes = 64 << 20
	// maxMessageBytes limits the size of a message of a stream. The largest messages have 256 KiB
	// of rows and one more row.
	maxMessageBytes = 16 << 20
	// framingBytes is added to maxMessageBytes for the bytes between two messages of a stream.
	framingBytes = 64
)

// ErrBadAnswer is the cause of the error for an answer that cannot be used. The node that gave it
// is at fault, so another node is asked.
var ErrBadAnswer = errors.New("a node gave a bad answer")

// badAnswer returns the error for an answer that cannot be used. predicate says what the node did,
// and completes the sentence "node x …".
func badAnswer(node, predicate string) error {
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Retry: apierror.RetrySoon, Cause: ErrBadAnswer, Text: "node " + node + " " + predicate,
	}
}

// BadAnswerError returns the error for an answer that does not fit the question.
func BadAnswerError(node string) error { return badAnswer(node, "gave an answer that cannot be read") }

// errNoMemory is the cause of the error of a call for whose answers this process has no memory.
// Another node is not asked, because its answer would need memory too.
var errNoMemory = errors.New("no memory for the answers of other nodes")

// answerMemory is the memory that the answers of nodes to one call take from the budget of bytes.
type answerMemory struct {
	// mu guards reservation, because one call of a client may ask several nodes at a time.
	mu          sync.Mutex
	reservation admission.Reservation
	// isStream says that the answer is a stream. messageLeft is then how many bytes of the current
	// message may still arrive.
	isStream    bool
	messageLeft int64
}

// answerMemoryKey is the key under which the context of a call has its *answerMemory.
type answerMemoryKey struct{}

// callerBetweenNodes is the caller to whom the budget of bytes charges answers that belong to no
// single call of a client: messages of streams, and answers to calls that nodes make by themselves.
const callerBetweenNodes = "streams between nodes"

// ChargeAnswers returns a context for a client's call. The answers of nodes to calls with this
// context count as memory of the caller until release is called.
func (p *Peers) ChargeAnswers(ctx context.Context, caller string) (_ context.Context, release func()) {
	m := &answerMemory{reservation: admission.NewReservation(p.bytes, caller)}
	return context.WithValue(ctx, answerMemoryKey{}, m), m.release
}

// chargeStream returns a context for a stream, and the memory that its messages take. Each message
// counts until nextMessage is called.
func (p *Peers) chargeStream(ctx context.Context) (context.Context, *answerMemory) {
	m := &answerMemory{reservation: admission.NewReservation(p.bytes, callerBetweenNodes), isStream: true}
	m.nextMessage()
	return context.WithValue(ctx, answerMemoryKey{}, m), m
}

// hold takes n bytes of the budget. If the budget does not have them, the error has the cause
// errNoMemory.
func (m *answerMemory) hold(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	failure := m.reservation.Hold(n)
	if failure != nil {
		failure.Cause = errNoMemory
		return failure
	}
	return nil // not failure, because an error that holds a nil *Failure is not nil
}

// release gives all bytes back to the budget.
func (m *answerMemory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reservation.Release()
}

// nextMessage releases the current message of a stream, and allows the next one.
func (m *answerMemory) nextMessage() {
	m.release()
	m.messageLeft = maxMessageBytes + framingBytes
}

// limitBody returns the body of an answer, with a limit on its size. What is read of it counts as
// memory of the call whose context is ctx.
func (p *Peers) limitBody(ctx context.Context, node string, body io.ReadCloser) io.ReadCloser {
	b := &limitedBody{ReadCloser: body, node: node, answerLeft: maxAnswerBytes}
	b.left = &b.answerLeft
	b.memory, _ = ctx.Value(answerMemoryKey{}).(*answerMemory)

	if b.memory == nil {
		// This node makes the call by itself, not for a client. Its answer counts until the body is
		// closed: by then, the answer has been decoded.
		b.memory = &answerMemory{reservation: admission.NewReservation(p.bytes, callerBetweenNodes)}
		b.releasesAtClose = true
	}
	if b.memory.isStream {
		b.left = &b.memory.messageLeft
	}
	return b
}

// limitedBody is the body of an answer of a node, with a limit on its size.
type limitedBody struct {
	io.ReadCloser
	node string
	// left points to the number of bytes that may still be read. For a stream, that is
	// memory.messageLeft, which nextMessage resets. For any other answer, it is answerLeft.
	left       *int64
	answerLeft int64
	memory     *answerMemory
	// releasesAtClose says that the answer belongs to no call of a client. It then counts as memory
	// only until its body is closed.
	releasesAtClose bool
}

// Read implements [io.Reader].
func (b *limitedBody) Read(p []byte) (int, error) {
	// Reading one byte more than allowed is enough to find that the answer is too large.
	if int64(len(p)) > *b.left+1 {
		p = p[:*b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	*b.left -= int64(n)
	if *b.left < 0 {
		return 0, badAnswer(b.node, "gave an answer that is too large: at most "+events.FormatSize(maxAnswerBytes)+", and "+
			events.FormatSize(maxMessageBytes)+" for a message of a stream")
	}
	if err := b.memory.hold(admission.HeldPerByte * int64(n)); err != nil {
		return 0, err
	}
	return n, err
}

// Close implements [io.Closer].
func (b *limitedBody) Close() error {
	if b.releasesAtClose {
		b.memory.release()
	}
	return b.ReadCloser.Close()
}

// checkPosition returns an error for an answer without a position, an answer of another log, or an
// answer that is older than the position that the request demands. It does not check messages that
// have no field for a position.
func (p *Peers) checkPosition(node string, req, res any) error {
	var text string
	switch m := res.(type) {
	case interface{ GetPosition() string }:
		text = m.GetPosition()
	case interface{ GetNewest() string }:
		text = m.GetNewest()
	default:
		return nil
	}

	position, err := events.ParsePosition(text)
	if err != nil {
		return badAnswer(node, "gave an answer without a position")
	}
	if [4]byte(p.log[:4]) != position.Log { // a position has the first bytes of the id of its log
		return badAnswer(node, "gave an answer of another log")
	}
	demanded := p.demandedSeq(req)
	if position.Seq < demanded {
		return badAnswer(node, fmt.Sprintf("gave an answer of sequence %d, which is before %d, the one asked for", position.Seq, demanded))
	}
	return nil
}

// demandedSeq returns the sequence that the answer to a request must contain: the one in its field
// at_least or the one in its page token, whichever is higher. An invalid position or token demands
// nothing here, because the node that is called refuses it.
func (p *Peers) demandedSeq(req any) (seq uint64) {
	if m, ok := req.(interface{ GetAtLeast() string }); ok {
		if position, err := events.ParsePosition(m.GetAtLeast()); err == nil {
			seq = position.Seq
		}
	}
	if m, ok := req.(interface{ GetPageToken() string }); ok && m.GetPageToken() != "" {
		if position, ok := p.keys.Position(m.GetPageToken()); ok {
			seq = max(seq, position.Seq)
		}
	}
	return seq
}
