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
	// maxAnswerBytes bounds the answer of a node to a call, and maxMessageBytes one message of a stream. The largest answers are those to
	// the questions of a query (RemoteBatch): 5000 of them, of which each may be answered with some 100 pins of about 100 bytes. The largest
	// message of a stream has 256 KiB of rows and one row more. Within these bounds, the budget of bytes decides (--memory).
	maxAnswerBytes, maxMessageBytes = 64 << 20, 16 << 20
	// framingBytes are read with each message of a stream.
	framingBytes = 64
)

// ErrBadAnswer is the cause of the error of a node whose answer cannot be used. It is that node's fault, so another one is asked.
var ErrBadAnswer = errors.New("a node gave a bad answer")

// badAnswer returns the error of such a node. What completes the sentence "node x …".
func badAnswer(node, what string) error {
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Retry: apierror.RetrySoon, Cause: ErrBadAnswer, Text: "node " + node + " " + what,
	}
}

// BadAnswerError is the error of a node that answers something else than it was asked.
func BadAnswerError(node string) error { return badAnswer(node, "gave an answer that cannot be read") }

// errNoMemory is the cause of the error of a call for whose answers this process has no memory. No other node can help.
var errNoMemory = errors.New("no memory for the answers of other nodes")

// answerMemory counts the memory that the answers of nodes take in the budget of bytes.
type answerMemory struct {
	// mu guards holding: a call may ask several nodes at a time.
	mu      sync.Mutex
	holding admission.Holding
	// isStream says that the answer is a stream. messageLeft then is how much of the current message may still be read.
	isStream    bool
	messageLeft int64
}

type answerMemoryKey struct{}

// memoryOfStreams is the caller for whom answers count that no call waits for: messages of streams, and what nodes do by themselves.
const memoryOfStreams = "streams between nodes"

// ChargeAnswers has the answers that are read for a call count for its caller, until release is called.
func (p *Peers) ChargeAnswers(ctx context.Context, caller string) (_ context.Context, release func()) {
	m := &answerMemory{holding: admission.NewHolding(p.bytes, caller)}
	return context.WithValue(ctx, answerMemoryKey{}, m), m.release
}

// chargeStream has each message of a stream count until nextMessage is called.
func (p *Peers) chargeStream(ctx context.Context) (context.Context, *answerMemory) {
	m := &answerMemory{holding: admission.NewHolding(p.bytes, memoryOfStreams), isStream: true}
	m.nextMessage()
	return context.WithValue(ctx, answerMemoryKey{}, m), m
}

func (m *answerMemory) hold(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.holding.Hold(n); f != nil {
		f.Cause = errNoMemory
		return f
	}
	return nil
}

func (m *answerMemory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holding.Release()
}

func (m *answerMemory) nextMessage() {
	m.release()
	m.messageLeft = maxMessageBytes + framingBytes
}

// boundBody bounds the body of an answer, and has what is read of it count as memory.
func (p *Peers) boundBody(ctx context.Context, node string, body io.ReadCloser) io.ReadCloser {
	b := &boundedBody{ReadCloser: body, node: node, limit: maxAnswerBytes}
	b.left = &b.limit
	if b.memory, _ = ctx.Value(answerMemoryKey{}).(*answerMemory); b.memory == nil {
		b.memory = &answerMemory{holding: admission.NewHolding(p.bytes, memoryOfStreams)}
		b.releasesAtClose = true
	}
	if b.memory.isStream {
		b.left = &b.memory.messageLeft
	}
	return b
}

type boundedBody struct {
	io.ReadCloser
	node string
	// left is how much may still be read; limit is what it points to, unless the answer is a stream.
	left   *int64
	limit  int64
	memory *answerMemory
	// releasesAtClose says that no call waits for the answer, so that it counts only while it is read.
	releasesAtClose bool
}

// Read is part of [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > *b.left+1 {
		p = p[:*b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, badAnswer(b.node, "gave an answer that is too large: at most "+events.FormatSize(maxAnswerBytes)+", and "+
			events.FormatSize(maxMessageBytes)+" for a message of a stream")
	}
	if err := b.memory.hold(admission.HeldPerByte * int64(n)); err != nil {
		return 0, err
	}
	return n, err
}

// Close is part of [io.Closer].
func (b *boundedBody) Close() error {
	if b.releasesAtClose {
		b.memory.release()
	}
	return b.ReadCloser.Close()
}

// checkPosition refuses an answer that is of another log than that of this process, or from before the position that was asked for. An
// empty message is neither. Messages without a position are not checked.
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
	at, err := events.ParsePosition(text)
	if err != nil {
		return badAnswer(node, "gave an answer without a position")
	}
	if [4]byte(p.log[:4]) != at.Log {
		return badAnswer(node, "gave an answer of another log")
	}
	if asked := p.demandedSeq(req); at.Seq < asked {
		return badAnswer(node, fmt.Sprintf("gave an answer of sequence %d, which is before %d, the one asked for", at.Seq, asked))
	}
	return nil
}

// demandedSeq is the sequence at or after which a request wants to be answered. A position or token that cannot be read demands nothing
// here: the callee refuses it.
func (p *Peers) demandedSeq(req any) (seq uint64) {
	if m, ok := req.(interface{ GetAtLeast() string }); ok {
		if at, err := events.ParsePosition(m.GetAtLeast()); err == nil {
			seq = at.Seq
		}
	}
	if m, ok := req.(interface{ GetPageToken() string }); ok && m.GetPageToken() != "" {
		if at, ok := p.keys.Position(m.GetPageToken()); ok {
			seq = max(seq, at.Seq)
		}
	}
	return seq
}
