package http1

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/call"
)

const (
	// headSpace is the number of bytes that are left in front of a message for the head of the
	// answer. The longest head of the loop itself has about 250 bytes.
	headSpace = 320 + maxSessionHeaders
	// maxSessionHeaders is the number of bytes that a session may append to the head.
	maxSessionHeaders = 100
)

// The values of headers that all answers share. They must not be changed.
var (
	gzipValue    = []string{"gzip"}
	nosniffValue = []string{"nosniff"}
)

// answerRequest answers the request that was read. It returns false if the connection has ended.
func (c *conn) answerRequest() bool {
	// The answer counts as memory until it was written.
	defer c.session.Release()

	ctx := c.ctx
	if c.head.timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.head.timeout)
		defer cancel()
	}

	// The bytes of the request stay valid until the next read.
	bodyStart := c.start + c.head.bytes
	body := c.buf[bodyStart : bodyStart+c.head.BodyBytes]
	c.start = bodyStart + c.head.BodyBytes

	// The message is encoded behind space for the head, whose length is known only afterwards. So
	// both go out in one write, which is one packet for a small answer.
	out := newAnswerBuffer(headSpace)
	defer out.free()
	message, lag, err := c.session.Answer(ctx, &c.head, body, out.bytes)
	if err != nil {
		return c.sendError(err)
	}
	out.bytes = message
	return c.sendMessage(out, lag)
}

// sendMessage writes a message and its head in one write. It returns false if the connection has
// ended.
func (c *conn) sendMessage(out *answerBuffer, lag int64) bool {
	head := c.answerHead[:0]
	head = append(head, "HTTP/1.1 200 OK\r\nAccept-Encoding: gzip\r\nContent-Type: application/proto\r\nX-Content-Type-Options: nosniff\r\n"...)
	if c.head.acceptsGzip && len(out.message()) >= CompressMinBytes {
		out = out.compressed()
		defer out.free()
		head = append(head, "Content-Encoding: gzip\r\n"...)
	}
	if lag >= 0 {
		head = append(head, call.LagHeader+": "...)
		head = strconv.AppendInt(head, lag, 10)
		head = append(head, "\r\n"...)
	}
	head, isLast := c.appendCommonHeaders(head, len(out.message()))

	// The head ends where the message begins.
	headStart := headSpace - len(head)
	copy(out.bytes[headStart:], head)
	return c.writeAnswer(out.bytes[headStart:], isLast)
}

// appendCommonHeaders appends what ends the head of each answer. isLast says that the answer closes
// its connection.
func (c *conn) appendCommonHeaders(head []byte, bodyBytes int) (_ []byte, isLast bool) {
	now := time.Now()
	c.renewDeadlines(now)
	head = c.session.AppendHeaders(head)
	head = append(head, "Date: "...)
	head = append(head, c.loop.formatDate(now)...)
	head = append(head, "\r\nContent-Length: "...)
	head = strconv.AppendInt(head, int64(bodyBytes), 10)

	// A client that must connect again reaches a process that does not stop.
	isLast = c.session.IsDraining()
	if isLast {
		head = append(head, "\r\nConnection: close"...)
	}
	return append(head, "\r\n\r\n"...), isLast
}

// writeAnswer writes an answer. It returns false if the connection has ended.
func (c *conn) writeAnswer(answer []byte, isLast bool) bool {
	_, err := c.netConn.Write(answer)
	return err == nil && !isLast
}

//nolint:gochecknoglobals // constants
var (
	errorWriter = connect.NewErrorWriter()
	// unaryRequest has what the error writer must know of a call: that it is a unary one of
	// Connect.
	unaryRequest = &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/proto"}}}
)

// WriteError writes an error as the answer to a unary call of Connect.
func WriteError(w http.ResponseWriter, err error) error {
	return errorWriter.Write(w, unaryRequest, err)
}

// sendError writes an error as the answer, as Connect's handlers do. It returns false if the
// connection has ended.
func (c *conn) sendError(err error) bool {
	body := newAnswerBuffer(0)
	defer body.free()
	recorded := &recordedError{header: http.Header{"Accept-Encoding": gzipValue, "X-Content-Type-Options": nosniffValue}, body: body}
	if err := WriteError(recorded, err); err != nil {
		c.loop.Logger.Debug("answer not sent", "error", err)
		return false
	}

	text := http.StatusText(recorded.status)
	if text == "" {
		text = "status code " + strconv.Itoa(recorded.status)
	}
	out := newAnswerBuffer(0)
	defer out.free()
	out.bytes = append(out.bytes, "HTTP/1.1 "+strconv.Itoa(recorded.status)+" "+text+"\r\n"...)
	_ = recorded.header.Write(out) // writing to a buffer in memory never fails
	var isLast bool
	out.bytes, isLast = c.appendCommonHeaders(out.bytes, len(body.message()))
	out.bytes = append(out.bytes, body.message()...)
	return c.writeAnswer(out.bytes, isLast)
}

// recordedError is an [http.ResponseWriter] that keeps what an error writer writes.
type recordedError struct {
	header http.Header
	status int
	body   *answerBuffer
}

// Header is part of [http.ResponseWriter], as are the next two.
func (r *recordedError) Header() http.Header { return r.header }

// WriteHeader keeps the status.
func (r *recordedError) WriteHeader(status int) { r.status = status }

// Write keeps the body.
func (r *recordedError) Write(p []byte) (int, error) { return r.body.Write(p) }
