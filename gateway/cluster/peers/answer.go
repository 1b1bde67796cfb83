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
	// maxAnswerBytes is the size of the largest answer to a call. The largest answers are those to
	// the questions of a RemoteBatch: up to 5000 questions, each of which may be answered with
	// about 100 pins of about 100 bytes. Up to this size, the budget of bytes decides (--memory).
	maxAnswerBytes = 64 << 20
	// maxMessageBytes is the size of the largest message of a stream. The largest messages have 256
	// KiB of rows and one more row.
	maxMessageBytes = 16 << 20
	// framingBytes is added to maxMessageBytes for the bytes between two messages of a stream.
	framingBytes = 64
)

// ErrBadAnswer is the cause of the error of a node whose answer cannot be used. The node is at
// fault, so another one is asked.
var ErrBadAnswer = errors.New("a node gave a bad answer")

// badAnswer returns the error of a node whose answer cannot be used. predicate completes the
// sentence "node x …".
func badAnswer(node, predicate string) error {
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Retry: apierror.RetrySoon, Cause: ErrBadAnswer, Text: "node " + node + " " + predicate,
	}
}

// BadAnswerError returns the error of a node whose answer does not fit the question.
func BadAnswerError(node string) error { return badAnswer(node, "gave an answer that cannot be read") }

// errNoMemory is the cause of the error of a call for whose answers this process has no memory. To
// ask another node would not help.
var errNoMemory = errors.New("no memory for the answers of other nodes")

// answerMemory is what the answers of nodes to one call hold of the budget of bytes.
type answerMemory struct {
	// mu guards reservation, because a call may ask several nodes at a time.
	mu          sync.Mutex
	reservation admission.Reservation
	// isStream says that the answer is a stream. messageLeft is then how many bytes of the current
	// message may still arrive.
	isStream    bool
	messageLeft int64
}

type answerMemoryKey struct{}

// callerBetweenNodes is the caller under which answers count that belong to no single call of a
// client: messages of streams, and answers to calls that nodes make by themselves.
const callerBetweenNodes = "streams between nodes"

// ChargeAnswers returns a context for a call. The answers of nodes to calls with this context count
// as memory of the caller until release is called.
func (p *Peers) ChargeAnswers(ctx context.Context, caller string) (_ context.Context, release func()) {
	m := &answerMemory{reservation: admission.NewReservation(p.bytes, caller)}
	return context.WithValue(ctx, answerMemoryKey{}, m), m.release
}

// chargeStream returns a context for a stream. Each message of the stream counts as memory until
// nextMessage is called.
func (p *Peers) chargeStream(ctx context.Context) (context.Context, *answerMemory) {
	m := &answerMemory{reservation: admission.NewReservation(p.bytes, callerBetweenNodes), isStream: true}
	m.nextMessage()
	return context.WithValue(ctx, answerMemoryKey{}, m), m
}

// hold takes n bytes of the budget, or fails.
func (m *answerMemory) hold(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.reservation.Hold(n); f != nil {
		f.Cause = errNoMemory
		return f
	}
	return nil
}

// release gives back all bytes.
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

// limitBody returns the body of an answer with a limit of its size. What is read of it counts as
// memory of the call in ctx.
func (p *Peers) limitBody(ctx context.Context, node string, body io.ReadCloser) io.ReadCloser {
	b := &limitedBody{ReadCloser: body, node: node, answerLeft: maxAnswerBytes}
	b.left = &b.answerLeft
	b.memory, _ = ctx.Value(answerMemoryKey{}).(*answerMemory)
	if b.memory == nil {
		b.memory = &answerMemory{reservation: admission.NewReservation(p.bytes, callerBetweenNodes)}
		b.releasesAtClose = true
	}
	if b.memory.isStream {
		b.left = &b.memory.messageLeft
	}
	return b
}

// limitedBody is the body of an answer of a node.
type limitedBody struct {
	io.ReadCloser
	node string
	// left points to how many bytes may still be read: to messageLeft of the memory for a stream,
	// and otherwise to answerLeft.
	left       *int64
	answerLeft int64
	memory     *answerMemory
	// releasesAtClose says that no call of a client has this answer, so it counts only until its
	// body is closed.
	releasesAtClose bool
}

// Read is part of [io.Reader].
func (b *limitedBody) Read(p []byte) (int, error) {
	// One byte more than allowed is enough to see that the answer is too large.
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

// Close is part of [io.Closer].
func (b *limitedBody) Close() error {
	if b.releasesAtClose {
		b.memory.release()
	}
	return b.ReadCloser.Close()
}

// checkPosition returns an error for an answer without a position, an answer of another log than
// that of this process, or one that is older than the position that the request demands. Types of
// messages that have no position field are not checked.
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
	if [4]byte(p.log[:4]) != position.Log {
		return badAnswer(node, "gave an answer of another log")
	}
	if demanded := p.demandedSeq(req); position.Seq < demanded {
		return badAnswer(node, fmt.Sprintf("gave an answer of sequence %d, which is before %d, the one asked for", position.Seq, demanded))
	}
	return nil
}

// demandedSeq returns the sequence at or after which a request must be answered: that of its
// at_least or of its page token. A position or token that is invalid demands nothing here, because
// the callee refuses it.
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
