package command

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// ClientFlags say which service a command calls, and how the command proves who the caller is.
type ClientFlags struct {
	Server  string        `help:"Address of the service." default:"http://127.0.0.1:7411" placeholder:"URL" group:"Connection:"`
	Timeout time.Duration `help:"How long one call may take." default:"30s" group:"Connection:"`

	TokenFile    string `help:"File with the caller's token. SKEIN_TOKEN can have the token itself instead." type:"path" placeholder:"FILE" group:"Connection:"`
	TokenInClear bool   `help:"Send the token to another machine even without TLS. Whoever sees the traffic can use the token." group:"Connection:"`
	TLSCA        string `name:"tls-ca" help:"Authorities that sign the service's certificate, PEM." type:"path" placeholder:"FILE" group:"Connection:"`
	ClientCert   string `help:"Client certificate, PEM, for a service that demands one." type:"path" placeholder:"FILE" group:"Connection:"`
	ClientKey    string `help:"Key of the client certificate, PEM." type:"path" placeholder:"FILE" group:"Connection:"`

	// token and tls are what AfterApply has read from the files of these flags.
	token string
	tls   *tls.Config
}

// Client talks to a service.
type Client struct {
	URL  string
	HTTP *http.Client
}

// url returns the address of the service with a scheme and without a slash at the end.
func (f *ClientFlags) url() string {
	url := strings.TrimSuffix(f.Server, "/")
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	return url
}

// Client returns a client of the service.
func (f *ClientFlags) Client() *Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: min(f.Timeout, 10*time.Second)}).DialContext,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     f.tls,
	}
	c := &Client{URL: f.url(), HTTP: &http.Client{
		Transport: transport,
		// A redirect is not followed, because the token must not go to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if f.token != "" {
		c.HTTP.Transport = authorizingTransport{"Bearer " + f.token, transport}
	}
	return c
}

// Events is the client of EventService.
func (c *Client) Events() skeinv1connect.EventServiceClient {
	return skeinv1connect.NewEventServiceClient(c.HTTP, c.URL)
}

// Graph is the client of GraphService.
func (c *Client) Graph() skeinv1connect.GraphServiceClient {
	return skeinv1connect.NewGraphServiceClient(c.HTTP, c.URL)
}

// Feed is the client of FeedService.
func (c *Client) Feed() skeinv1connect.FeedServiceClient {
	return skeinv1connect.NewFeedServiceClient(c.HTTP, c.URL)
}

// Seen is the client of SeenService.
func (c *Client) Seen() skeinv1connect.SeenServiceClient {
	return skeinv1connect.NewSeenServiceClient(c.HTTP, c.URL)
}

// Counters is the client of CounterService.
func (c *Client) Counters() skeinv1connect.CounterServiceClient {
	return skeinv1connect.NewCounterServiceClient(c.HTTP, c.URL)
}

// Notifications is the client of NotificationService.
func (c *Client) Notifications() skeinv1connect.NotificationServiceClient {
	return skeinv1connect.NewNotificationServiceClient(c.HTTP, c.URL)
}

// Admin is the client of AdminService.
func (c *Client) Admin() skeinv1connect.AdminServiceClient {
	return skeinv1connect.NewAdminServiceClient(c.HTTP, c.URL)
}

// Method is one method of the API.
type Method[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// Call makes a call with the timeout of the flags.
func Call[Req, Res any](ctx context.Context, f *ClientFlags, m Method[Req, Res], req *Req) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	res, err := m(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// Explain returns the text of an error for people. To an error of a call it adds the reason that
// the service gives, and to a failed connection what the user can do.
func Explain(err error) string {
	var callError *connect.Error
	if !errors.As(err, &callError) {
		return err.Error()
	}

	text := err.Error()
	if reason := ReasonOf(callError); reason != "" {
		text += " (" + reason + ")"
	}
	var networkError *net.OpError
	if errors.As(err, &networkError) && networkError.Op == "dial" {
		text += "\nIs the service (skein serve) running at this address? Give another address with --server or SKEIN_SERVER."
	}
	return text
}

// ReasonOf returns the reason that the service gives in an error, such as INVALID_FIELD; empty
// means that the error has none.
func ReasonOf(err *connect.Error) string {
	for _, detail := range err.Details() {
		if value, verr := detail.Value(); verr == nil {
			if info, ok := value.(*errdetails.ErrorInfo); ok {
				return info.GetReason()
			}
		}
	}
	return ""
}
