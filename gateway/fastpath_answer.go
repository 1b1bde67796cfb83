package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// answerRoom is left before a message for the head of its answer.
const answerRoom = 320

// answer answers the request that was read, and reports whether another one may follow.
func (c *fastConn) answer(m plainMethod) bool {
	s, h := c.f.s, &c.head
	ctx := callNamed(c.ctx, h.requestID)
	if s.tracer != nil {
		ctx = s.traced(ctx, string(h.traceParent))
	}
	call := &h.call
	if call.timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, call.timeout)
		defer cancel()
	}
	out := takeBuffer(answerRoom)
	defer out.give()
	body := c.buf[c.from+h.bytes : c.from+h.bytes+h.body]
	c.from += h.bytes + h.body
	c.known.Begin(time.Now())
	lag, err := func() (int64, error) {
		defer c.known.End()
		return m.answerPlain(ctx, c.caller, body, out)
	}()
	defer c.held.Release()
	if err == nil {
		if f := c.hold(len(out.held())); f != nil {
			err = s.answerRefused(ctx, f)
		}
	}
	if err != nil {
		return c.sendError(err)
	}
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
		b = append(b, LagHeader+": "...)
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
	if last = c.f.s.draining.Load(); last {
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

// sendError sends an error, as it is written for any other call.
func (c *fastConn) sendError(err error) bool {
	body := takeBuffer(0)
	defer body.give()
	a := &errorAnswer{header: http.Header{"Accept-Encoding": gzipName, noSniffHeader: noSniff}, body: body}
	if err := c.f.s.errorWriter.Write(a, plainRequest, err); err != nil {
		c.f.s.logger.Debug("answer not sent", "error", err)
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
