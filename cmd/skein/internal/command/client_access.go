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

// tokenVariable is the environment variable that can have a token. No flag can, because every user
// of the machine can see command lines.
const tokenVariable = "SKEIN_TOKEN"

// AfterApply reads the files of the flags. The parser calls it, so that errors in the files are
// reported before the command begins.
func (f *ClientFlags) AfterApply() (err error) {
	f.token, err = f.readToken(f.url())
	if err != nil {
		return err
	}
	f.tls, err = f.ReadTLS()
	return err
}

// readToken returns the token to send to a service; empty means that there is none.
func (f *ClientFlags) readToken(url string) (string, error) {
	token := os.Getenv(tokenVariable)
	source := tokenVariable
	if f.TokenFile != "" {
		data, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		token = string(data)
		source = "--token-file " + f.TokenFile
	}

	token = strings.TrimSpace(token)
	if token == "" {
		if f.TokenFile != "" {
			return "", fmt.Errorf("%s: the file is empty", source)
		}
		return "", nil
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: this is not a token: a token has no spaces, control characters or characters beyond ASCII", source)
	}
	if !f.TokenInClear && !isPrivate(url) {
		return "", fmt.Errorf("%s: whoever sees the traffic to %s could use the token: give --server an https:// URL, or add "+
			"--token-in-clear", source, url)
	}
	return token, nil
}

// isPrivate reports whether traffic to a URL is encrypted or stays on this machine.
func isPrivate(url string) bool {
	u, err := neturl.Parse(url)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// ReadTLS returns the TLS configuration of the flags; nil means the default one.
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

// authorizingTransport adds a token to every request.
type authorizingTransport struct {
	header string // the value of the header Authorization
	next   http.RoundTripper
}

// RoundTrip is part of http.RoundTripper.
func (t authorizingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not change the request
	r.Header.Set("Authorization", t.header)
	return t.next.RoundTrip(r)
}

// CloseIdleConnections closes the idle connections of the next transport. http.Client calls it if
// the method exists.
func (t authorizingTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
