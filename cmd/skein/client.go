package main

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

// clientFlags say which service a command talks to.
type clientFlags struct {
	Server  string        `help:"Address of the service." default:"http://127.0.0.1:7411" placeholder:"URL" group:"Connection:"`
	Timeout time.Duration `help:"How long one call may take." default:"30s" group:"Connection:"`

	TokenFile    string `help:"File with the caller's token; or the token in SKEIN_TOKEN." type:"path" placeholder:"FILE" group:"Connection:"`
	TokenInClear bool   `help:"Send the token over http:// to other machines too: whoever sees the traffic can use it." group:"Connection:"`
	TLSCA        string `name:"tls-ca" help:"CAs of the service's certificate, PEM." type:"path" placeholder:"FILE" group:"Connection:"`
	ClientCert   string `help:"Client certificate, PEM, for a service that demands one." type:"path" placeholder:"FILE" group:"Connection:"`
	ClientKey    string `help:"Key of the client certificate, PEM." type:"path" placeholder:"FILE" group:"Connection:"`

	// token and tls are made of these by AfterApply.
	token string
	tls   *tls.Config
}

// client talks to a service.
type client struct {
	url  string
	http *http.Client
}

func (f *clientFlags) url() string {
	url := strings.TrimSuffix(f.Server, "/")
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	return url
}

func (f *clientFlags) client() *client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: min(f.Timeout, 10*time.Second)}).DialContext,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     f.tls,
	}
	c := &client{url: f.url(), http: &http.Client{
		Transport: transport,
		// A token is for the service that was named, and for nobody that it sends its clients to.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if f.token != "" {
		c.http.Transport = bearing{"Bearer " + f.token, transport}
	}
	return c
}

func (c *client) events() skeinv1connect.EventServiceClient {
	return skeinv1connect.NewEventServiceClient(c.http, c.url)
}

func (c *client) graph() skeinv1connect.GraphServiceClient {
	return skeinv1connect.NewGraphServiceClient(c.http, c.url)
}

func (c *client) feed() skeinv1connect.FeedServiceClient {
	return skeinv1connect.NewFeedServiceClient(c.http, c.url)
}

func (c *client) seen() skeinv1connect.SeenServiceClient {
	return skeinv1connect.NewSeenServiceClient(c.http, c.url)
}

func (c *client) counters() skeinv1connect.CounterServiceClient {
	return skeinv1connect.NewCounterServiceClient(c.http, c.url)
}

func (c *client) admin() skeinv1connect.AdminServiceClient {
	return skeinv1connect.NewAdminServiceClient(c.http, c.url)
}

// method is one method of the API.
type method[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// call makes a call within the time that one may take.
func call[Req, Res any](ctx context.Context, f *clientFlags, m method[Req, Res], req *Req) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	res, err := m(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// explain is an error in words, with what to do where that is known.
func explain(err error) string {
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return err.Error()
	}
	text := err.Error()
	if reason := reasonOf(refused); reason != "" {
		text += " (" + reason + ")"
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		text += "\nIs the service running there (skein serve)? --server or SKEIN_SERVER says where it is."
	}
	return text
}

// reasonOf is the reason of an error of the service; empty: it has none.
func reasonOf(err *connect.Error) string {
	for _, detail := range err.Details() {
		if value, verr := detail.Value(); verr == nil {
			if info, ok := value.(*errdetails.ErrorInfo); ok {
				return info.GetReason()
			}
		}
	}
	return ""
}
