package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"strings"
)

// tokenVariable is the environment variable with a token. There is no such flag, because every user of the machine can see command lines.
const tokenVariable = "SKEIN_TOKEN"

// AfterApply reads the files. The parser calls it, so that errors in them are reported before the command begins.
func (f *ClientFlags) AfterApply() (err error) {
	if f.token, err = f.readToken(f.url()); err != nil {
		return err
	}
	f.tls, err = f.ReadTLS()
	return err
}

// readToken returns the token to send to a service; empty means none.
func (f *ClientFlags) readToken(url string) (string, error) {
	token, from := os.Getenv(tokenVariable), tokenVariable
	if f.TokenFile != "" {
		data, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		token, from = string(data), "--token-file "+f.TokenFile
	}
	if token = strings.TrimSpace(token); token == "" {
		if f.TokenFile != "" {
			return "", fmt.Errorf("%s: the file is empty", from)
		}
		return "", nil
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: what it holds is no token: it has spaces or letters that no token has", from)
	}
	if !f.TokenInClear && !private(url) {
		return "", fmt.Errorf("%s: whoever sees the traffic to %s could use the token: give --server an https:// URL, or add "+
			"--token-in-clear", from, url)
	}
	return token, nil
}

// private reports whether traffic to a URL is encrypted or stays on this machine.
func private(url string) bool {
	u, err := neturl.Parse(url)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// ReadTLS returns the configuration of TLS; nil means the usual one.
func (f *ClientFlags) ReadTLS() (*tls.Config, error) {
	if f.TLSCA == "" && f.ClientCert == "" && f.ClientKey == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.TLSCA != "" {
		pem, err := os.ReadFile(f.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: %s has no certificate in PEM", f.TLSCA)
		}
	}
	if (f.ClientCert == "") != (f.ClientKey == "") {
		return nil, errors.New("--client-cert and --client-key need each other")
	}
	if f.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("--client-cert, --client-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// bearing sends a token with every request.
type bearing struct {
	header string
	next   http.RoundTripper
}

// RoundTrip is part of http.RoundTripper.
func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not change the request
	r.Header.Set("Authorization", b.header)
	return b.next.RoundTrip(r)
}

// CloseIdleConnections lets http.Client close idle connections of the transport within.
func (b bearing) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
