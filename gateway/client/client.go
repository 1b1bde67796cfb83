package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// Client has the clients of all services. They may be used concurrently.
type Client struct {
	Events        skeinv1connect.EventServiceClient
	Graph         skeinv1connect.GraphServiceClient
	Feed          skeinv1connect.FeedServiceClient
	Seen          skeinv1connect.SeenServiceClient
	Counters      skeinv1connect.CounterServiceClient
	Notifications skeinv1connect.NotificationServiceClient
	Admin         skeinv1connect.AdminServiceClient
	Health        healthv1connect.HealthClient

	http  connect.HTTPClient
	close func()
}

// Options are the settings of [Dial]. The zero value is ready to use.
type Options struct {
	// HTTP makes the requests. By default it is a client that keeps many connections to one
	// service.
	HTTP connect.HTTPClient
	// HTTP2 makes the default HTTP client use HTTP/2 for http URLs, too. gRPC needs it. Everything
	// else is faster with HTTP/1.1.
	HTTP2 bool
	// Token identifies the caller, if the service has access control (docs/access.md). It is sent
	// to the host of the URL with each call, so the URL should begin with https. An empty token is
	// not sent.
	Token string
	// Connect has options for the clients of all services, such as connect.WithGRPC(),
	// connect.WithHTTPGet() or interceptors.
	Connect []connect.ClientOption
}

// ErrBaseURL is returned by [Dial] if the base URL is not a valid http or https URL.
var ErrBaseURL = errors.New("client: the base URL must be http:// or https:// and a host")

// Dial returns the clients of the service at a URL such as "http://127.0.0.1:7001". It does not
// connect: the first call does. It returns [ErrBaseURL] if the URL is not valid.
func Dial(baseURL string, o Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%w: %q", ErrBaseURL, baseURL)
	}
	c := &Client{http: o.HTTP, close: func() {}}
	if c.http == nil {
		transport := newTransport(o.HTTP2)
		c.http = &http.Client{Transport: transport}
		c.close = transport.CloseIdleConnections
	}
	if o.Token != "" {
		c.http = bearerClient{"Bearer " + o.Token, c.http}
	}
	base := strings.TrimSuffix(baseURL, "/")
	c.Events = skeinv1connect.NewEventServiceClient(c.http, base, o.Connect...)
	c.Graph = skeinv1connect.NewGraphServiceClient(c.http, base, o.Connect...)
	c.Feed = skeinv1connect.NewFeedServiceClient(c.http, base, o.Connect...)
	c.Seen = skeinv1connect.NewSeenServiceClient(c.http, base, o.Connect...)
	c.Counters = skeinv1connect.NewCounterServiceClient(c.http, base, o.Connect...)
	c.Notifications = skeinv1connect.NewNotificationServiceClient(c.http, base, o.Connect...)
	c.Admin = skeinv1connect.NewAdminServiceClient(c.http, base, o.Connect...)
	c.Health = healthv1connect.NewHealthClient(c.http, base, o.Connect...)
	return c, nil
}

// bearerClient sends a token with each request.
type bearerClient struct {
	header string
	next   connect.HTTPClient
}

// Do is part of connect.HTTPClient.
func (b bearerClient) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", b.header)
	return b.next.Do(r)
}

// newTransport returns a transport that keeps many idle connections, because HTTP/1.1 needs one for
// each call at a time. The default of net/http keeps two per host.
func newTransport(http2 bool) *http.Transport {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     time.Minute,
	}
	if http2 {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
		t.Protocols.SetHTTP2(true)
	}
	return t
}

// Close closes idle connections. It does nothing if [Options.HTTP] was set, because that client
// belongs to the caller.
func (c *Client) Close() { c.close() }

// Reason returns the reason of an error of the service, such as "NOT_CAUGHT_UP": a value of the
// enum skein.v1.Reason without its prefix. It returns "" for an error that does not come from the
// service.
func Reason(err error) string {
	info := detail[*errdetails.ErrorInfo](err)
	if info.GetDomain() != "skein" {
		return ""
	}
	return info.GetReason()
}

// RetryDelay returns the delay after which the same call may succeed. It returns false if the error
// does not name one.
func RetryDelay(err error) (time.Duration, bool) {
	info := detail[*errdetails.RetryInfo](err)
	if info == nil {
		return 0, false
	}
	return info.GetRetryDelay().AsDuration(), true
}

// Violations returns the invalid fields of the request, each with a description.
func Violations(err error) []*errdetails.BadRequest_FieldViolation {
	return detail[*errdetails.BadRequest](err).GetFieldViolations()
}

// detail returns the first detail of type T of an error of Connect, or the zero value.
func detail[T any](err error) (found T) {
	var connectErr *connect.Error
	if !errors.As(err, &connectErr) {
		return found
	}
	for _, d := range connectErr.Details() {
		value, err := d.Value()
		if err != nil {
			continue // a kind of detail that this version does not know
		}
		if t, ok := value.(T); ok {
			return t
		}
	}
	return found
}
