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

// ClientFlags say which service a command talks to.
type ClientFlags struct {
	Server  string        `help:"Address of the service." default:"http://127.0.0.1:7411" placeholder:"URL" group:"Connection:"`
	Timeout time.Duration `help:"How long one call may take." default:"30s" group:"Connection:"`

	TokenFile    string `help:"File with the caller's token; or the token in SKEIN_TOKEN." type:"path" placeholder:"FILE" group:"Connection:"`
	TokenInClear bool   `help:"Send the token over http:// to other machines too: whoever sees the traffic can use it." group:"Connection:"`
	TLSCA        string `name:"tls-ca" help:"CAs of the service's certificate, PEM." type:"path" placeholder:"FILE" group:"Connection:"`
	ClientCert   string `help:"Client certificate, PEM, for a service that demands one." type:"path" placeholder:"FILE" group:"Connection:"`
	ClientKey    string `help:"Key of the client certificate, PEM." type:"path" placeholder:"FILE" group:"Connection:"`

	// AfterApply reads token and tls from the files of these flags.
	token string
	tls   *tls.Config
}

// Client talks to a service.
type Client struct {
	URL  string
	HTTP *http.Client
}

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
		// The token must go only to the named service, not to a host to which it redirects.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if f.token != "" {
		c.HTTP.Transport = bearing{"Bearer " + f.token, transport}
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

// Explain returns an error for people, with advice where there is any.
func Explain(err error) string {
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return err.Error()
	}
	text := err.Error()
	if reason := ReasonOf(refused); reason != "" {
		text += " (" + reason + ")"
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		text += "\nIs the service running there (skein serve)? --server or SKEIN_SERVER says where it is."
	}
	return text
}

// ReasonOf returns the reason in an error of the service; empty means that it has none.
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
