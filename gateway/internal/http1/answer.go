package http1

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/call"
)

// answerRoom is left before a message for the head of its answer.
const answerRoom = 320

// answer answers the request that was read, and reports whether another one may follow.
func (c *fastConn) answer() bool {
	h := &c.head
	ctx := c.ctx
	call := &h.call
	if call.timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, call.timeout)
		defer cancel()
	}
	out := takeBuffer(answerRoom)
	defer out.give()
	body := c.buf[c.from+h.bytes : c.from+h.bytes+h.BodyBytes]
	c.from += h.bytes + h.BodyBytes
	defer c.session.Release()
	answer, lag, err := c.session.Answer(ctx, h, body, out.bytes)
	if err != nil {
		return c.sendError(err)
	}
	out.bytes = answer
	return c.send(out, call.gzip, lag)
}

// send sends a message, with its head before it in one write.
func (c *fastConn) send(out *callBuffer, compress bool, lag int64) bool {
	b := c.answerHead[:0]
	b = append(b, "HTTP/1.1 200 OK\r\nAccept-Encoding: gzip\r\nContent-Type: application/proto\r\nX-Content-Type-Options: nosniff\r\n"...)
	if compress && out.packs() {
		out = out.packed()
		defer out.give()
		b = append(b, "Content-Encoding: gzip\r\n"...)
	}
	if lag >= 0 {
		b = append(b, call.LagHeader+": "...)
		b = append(strconv.AppendInt(b, lag, 10), "\r\n"...)
	}
	b, last := c.endHead(b, len(out.held()))
	at := answerRoom - len(b)
	copy(out.bytes[at:], b)
	return c.write(out.bytes[at:], last)
}

// endHead appends what stands at the end of each head, and reports whether the answer is the last one of its connection.
func (c *fastConn) endHead(b []byte, body int) (head []byte, last bool) {
	now := time.Now()
	c.renew(now)
	b = append(append(b, "Date: "...), c.f.dateOf(now)...)
	b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(body), 10)
	// This process is about to stop. A client that must connect again reaches one that stays.
	if last = c.session.IsDraining(); last {
		b = append(b, "\r\nConnection: close"...)
	}
	return append(b, "\r\n\r\n"...), last
}

func (c *fastConn) write(data []byte, last bool) bool {
	_, err := c.conn.Write(data)
	return err == nil && !last
}

// plainRequest is what the writer of errors has to know of a plain call: that it is a unary one of Connect.
//
//nolint:gochecknoglobals // constant
var plainRequest = &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": protoName}}

var errorWriter = connect.NewErrorWriter() //nolint:gochecknoglobals // constant

// WriteError answers a unary call of Connect with an error.
func WriteError(w http.ResponseWriter, err error) error {
	return errorWriter.Write(w, plainRequest, err)
}

// sendError sends an error, as it is written for any other call.
func (c *fastConn) sendError(err error) bool {
	body := takeBuffer(0)
	defer body.give()
	a := &errorAnswer{header: http.Header{"Accept-Encoding": gzipName, "X-Content-Type-Options": noSniff}, body: body}
	if err := WriteError(a, err); err != nil {
		c.f.Logger.Debug("answer not sent", "error", err)
		return false
	}
	out := takeBuffer(0)
	defer out.give()
	text := http.StatusText(a.status)
	if text == "" {
		text = "status code " + strconv.Itoa(a.status)
	}
	out.bytes = append(out.bytes, "HTTP/1.1 "+strconv.Itoa(a.status)+" "+text+"\r\n"...)
	// A buffer in memory takes everything.
	_ = a.header.Write(out)
	var last bool
	out.bytes, last = c.endHead(out.bytes, len(body.held()))
	out.bytes = append(out.bytes, body.held()...)
	return c.write(out.bytes, last)
}

// errorAnswer keeps an error that is written.
type errorAnswer struct {
	header http.Header
	status int
	body   *callBuffer
}

// Header is part of [http.ResponseWriter], as are the next two.
func (a *errorAnswer) Header() http.Header { return a.header }

// WriteHeader keeps the status.
func (a *errorAnswer) WriteHeader(status int) { a.status = status }

// Write keeps the body.
func (a *errorAnswer) Write(p []byte) (int, error) { return a.body.Write(p) }
