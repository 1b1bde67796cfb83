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

// Client holds the clients of all services. They are safe for concurrent use.
type Client struct {
	Events   skeinv1connect.EventServiceClient
	Graph    skeinv1connect.GraphServiceClient
	Feed     skeinv1connect.FeedServiceClient
	Seen     skeinv1connect.SeenServiceClient
	Counters skeinv1connect.CounterServiceClient
	Admin    skeinv1connect.AdminServiceClient
	Health   healthv1connect.HealthClient

	http  connect.HTTPClient
	close func()
}

// Options are the settings of [Dial]. The zero value is good.
type Options struct {
	// HTTP makes the requests; default: a client of its own, with many connections to the one service.
	HTTP connect.HTTPClient
	// HTTP2 makes the default HTTP client speak HTTP/2 to http URLs, too, which gRPC needs. For all else HTTP/1.1 is
	// faster.
	HTTP2 bool
	// Token says who calls, where the service wants to know (docs/access.md); empty means none. It is sent to whatever the
	// URL names: give it an https one.
	Token string
	// Connect are options of every client, such as connect.WithGRPC(), connect.WithHTTPGet() or interceptors.
	Connect []connect.ClientOption
}

// ErrBaseURL is returned by [Dial] for what is no http or https URL.
var ErrBaseURL = errors.New("client: the base URL must be http:// or https:// and a host")

// Dial makes the clients of the service at a URL such as "http://127.0.0.1:7001". It opens no connection yet.
// It returns [ErrBaseURL].
func Dial(baseURL string, o Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%w: %q", ErrBaseURL, baseURL)
	}
	c := &Client{http: o.HTTP, close: func() {}}
	if c.http == nil {
		transport := newTransport(o.HTTP2)
		c.http, c.close = &http.Client{Transport: transport}, transport.CloseIdleConnections
	}
	if o.Token != "" {
		c.http = bearing{"Bearer " + o.Token, c.http}
	}
	base := strings.TrimSuffix(baseURL, "/")
	c.Events = skeinv1connect.NewEventServiceClient(c.http, base, o.Connect...)
	c.Graph = skeinv1connect.NewGraphServiceClient(c.http, base, o.Connect...)
	c.Feed = skeinv1connect.NewFeedServiceClient(c.http, base, o.Connect...)
	c.Seen = skeinv1connect.NewSeenServiceClient(c.http, base, o.Connect...)
	c.Counters = skeinv1connect.NewCounterServiceClient(c.http, base, o.Connect...)
	c.Admin = skeinv1connect.NewAdminServiceClient(c.http, base, o.Connect...)
	c.Health = healthv1connect.NewHealthClient(c.http, base, o.Connect...)
	return c, nil
}

// bearing sends a token with every request.
type bearing struct {
	header string
	next   connect.HTTPClient
}

// Do is part of connect.HTTPClient.
func (b bearing) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", b.header)
	return b.next.Do(r)
}

// newTransport keeps as many connections as there are calls at a time: HTTP/1.1 has one call a connection.
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

// Close closes idle connections. A client that was given its HTTP client leaves it alone.
func (c *Client) Close() { c.close() }

// Reason returns the public reason of an error of the service, such as "NOT_CAUGHT_UP" (the values of the enum
// skein.v1.Reason without their prefix), and the empty string for any other error.
func Reason(err error) string {
	info := detail[*errdetails.ErrorInfo](err)
	if info.GetDomain() != "skein" {
		return ""
	}
	return info.GetReason()
}

// RetryDelay returns after how long the service says that the same call may succeed; false: it does not say so.
func RetryDelay(err error) (time.Duration, bool) {
	info := detail[*errdetails.RetryInfo](err)
	if info == nil {
		return 0, false
	}
	return info.GetRetryDelay().AsDuration(), true
}

// Violations returns the fields at fault, each with what is wrong with it.
func Violations(err error) []*errdetails.BadRequest_FieldViolation {
	return detail[*errdetails.BadRequest](err).GetFieldViolations()
}

func detail[T any](err error) (found T) {
	var failed *connect.Error
	if !errors.As(err, &failed) {
		return found
	}
	for _, d := range failed.Details() {
		value, err := d.Value()
		if err != nil {
			continue
		}
		if t, ok := value.(T); ok {
			return t
		}
	}
	return found
}
