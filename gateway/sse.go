package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/http1"
	"github.com/skein-feed/skein/gateway/internal/request"
)

// Server-Sent Events make a stream readable for a page in a browser with nothing but EventSource.
// The page sends a GET to the path of the method, with the request as JSON in the query parameter
// "message", as Connect defines it for reads. Authentication, limits and validation are those of
// every stream. Each event has a message as JSON, and the position of the message as its id. A
// browser whose connection broke reconnects by itself, and sends the last id that it received.

// positionedMessage is a message of a stream that can resume after the message.
type positionedMessage interface {
	proto.Message
	GetPosition() string
}

// mountForBrowsers makes a stream also available by GET as Server-Sent Events. resume changes a
// request so that its stream continues after a position.
func mountForBrowsers[Req, Res any, P request.Message[Req]](m *streamMethod[Req, Res, P], resume func(req P, position string)) {
	rpcHandler := m.s.methods[m.procedure]
	m.s.methods[m.procedure] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			rpcHandler.ServeHTTP(w, r)
			return
		}

		var req request.Received[Req, P]
		if err := decodeQuery(r.URL.RawQuery, &req); err != nil {
			req.Err = err // answer reports it
		}
		// A browser that reconnects repeats the first request and adds this header, which is newer
		// than the position in the request.
		lastID := r.Header.Get("Last-Event-ID")
		if lastID != "" {
			resume(&req.Msg, lastID)
		}

		out := &sseStream[Res]{w: w, deadline: answerDeadlineOf(r.Context())}
		if err := m.answer(r.Context(), &req, out); err != nil {
			out.sendError(err)
		}
	})
}

// decodeQuery decodes the request in a query into req, a [request.Received]. It returns the errors
// of the query. If the message itself does not decode, the codec stores the error in req, as it
// does for a body.
func decodeQuery(query string, req any) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return apierror.Invalid(apierror.InvalidField("request", "must have a query of escaped parameters: %v", err))
	}
	for name := range values {
		if name != "message" && name != "encoding" && name != "connect" {
			return apierror.Invalid(apierror.InvalidField("request",
				`must have the whole message as JSON in the parameter message, as in message={"readerId":"ann"}, escaped; %.40q is no parameter`, name))
		}
	}
	if encoding := values.Get("encoding"); encoding != "" && encoding != "json" {
		return apierror.Invalid(apierror.InvalidField("request", "must have encoding=json or no encoding; it is %.40q", encoding))
	}
	message := values.Get("message")
	if message == "" {
		message = "{}"
	}
	return (request.JSONCodec{}).Unmarshal([]byte(message), req)
}

// sseStream sends the messages of a stream as Server-Sent Events.
type sseStream[Res any] struct {
	w http.ResponseWriter
	// deadline is nil for a call that did not come through net/http.
	deadline *answerDeadline
	// hasBegun is set once the head of the answer was sent.
	hasBegun bool
}

// Send sends one message as an event. It fails if the client does not read the event in time.
func (p *sseStream[Res]) Send(part *Res) error {
	message, ok := any(part).(positionedMessage)
	if !ok {
		return fmt.Errorf("gateway: %T has no position", part)
	}
	data, err := (request.JSONCodec{}).Marshal(message)
	if err != nil {
		return err
	}
	return p.sendEvent(fmt.Appendf(nil, "id: %s\ndata: %s\n\n", message.GetPosition(), data))
}

// SetLag sets the header that says by how many envelopes the first message is behind the log.
func (p *sseStream[Res]) SetLag(lag int64) { p.w.Header()[LagHeader] = formatLag(lag) }

func (p *sseStream[Res]) sendEvent(event []byte) error {
	if p.deadline != nil {
		p.deadline.extend()
		defer p.deadline.clear()
	}
	if !p.hasBegun {
		p.hasBegun = true
		p.w.Header().Set("Content-Type", "text/event-stream")
		p.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx would delay events to send several at once
	}
	if _, err := p.w.Write(event); err != nil {
		return err
	}
	// The next event may follow much later, so this one must not stay in a buffer until then.
	return http.NewResponseController(p.w).Flush()
}

// sendError answers with the error if the stream has not begun. Otherwise it sends the same JSON in
// an event named "end".
func (p *sseStream[Res]) sendError(err error) {
	if !p.hasBegun {
		_ = http1.WriteError(p.w, err) // an error means that the client has gone away
		return
	}
	// EventSource shows a page no error of a connection, so the error is sent as an event.
	recorder := &errorRecorder{header: http.Header{}}
	if writeErr := http1.WriteError(recorder, err); writeErr == nil && errors.As(err, new(*connect.Error)) {
		_ = p.sendEvent(fmt.Appendf(nil, "event: end\ndata: %s\n\n", recorder.body.Bytes()))
	}
}

// errorRecorder is an [http.ResponseWriter] that keeps the body of an error.
type errorRecorder struct {
	header http.Header
	body   bytes.Buffer
}

// Header is part of [http.ResponseWriter], as are the next two.
func (e *errorRecorder) Header() http.Header { return e.header }

// WriteHeader ignores the status, because the stream has already begun with another one.
func (*errorRecorder) WriteHeader(int) {}

// Write keeps the body.
func (e *errorRecorder) Write(p []byte) (int, error) { return e.body.Write(p) }
