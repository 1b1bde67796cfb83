package access

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/gateway/access/accesstest"
)

// TestOnlyTrustedClientsCompleteTheHandshake demands that a client without a valid certificate of
// the authority, or without a current version of TLS, cannot complete a handshake.
func TestOnlyTrustedClientsCompleteTheHandshake(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	other := accesstest.NewAuthority(t)
	cert, key := ca.Server(t.TempDir())
	c, err := OpenCertificates(Files{Cert: cert, Key: key, ClientCA: ca.File}, nil)
	if err != nil {
		t.Fatal(err)
	}
	good, _, _ := ca.Client(t.TempDir(), "web")
	foreign, _, _ := other.Client(t.TempDir(), "web")
	// stolen has a good certificate, but the key of another one.
	stolen := tls.Certificate{Certificate: good.Certificate, PrivateKey: foreign.PrivateKey}
	client := func(cert ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ca.Pool, Certificates: cert, MinVersion: tls.VersionTLS12}
	}
	versions := func(least, most uint16, ciphers ...uint16) *tls.Config {
		config := client(good)
		config.MinVersion = least
		config.MaxVersion = most
		config.CipherSuites = ciphers
		return config
	}
	if _, _, err := connect(t, c.Config(), client(good)); err != nil {
		t.Fatalf("a good client was not accepted: %v", err)
	}

	for _, a := range []struct {
		name   string
		client *tls.Config
	}{
		{"no certificate", client()},
		{"a certificate of another authority, with a good name", client(foreign)},
		{"a certificate that has expired", client(ca.ClientUntil(t.TempDir(), "web", time.Now().Add(-time.Minute)))},
		{"a certificate that is not valid yet", client(ca.ClientFrom(t.TempDir(), "web", time.Now().Add(time.Hour)))},
		{"a certificate of a server", client(mustLoadPair(t, cert, key))},
		{"a good certificate without its key", client(stolen)},
		{"TLS 1.0 and 1.1", versions(tls.VersionTLS10, tls.VersionTLS11)},
		{"TLS 1.2 without forward secrecy", versions(tls.VersionTLS12, tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256)},
		{"TLS 1.2 with 3DES or RC4", versions(tls.VersionTLS12, tls.VersionTLS12,
			tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA)},
	} {
		t.Run(a.name, func(t *testing.T) {
			_, text, err := connect(t, c.Config(), a.client)
			if err == nil {
				t.Fatalf("the client was accepted and received %q, expected an error", text)
			}
			_, isOfConnection := errors.AsType[*net.OpError](err)
			if !isOfConnection && !strings.Contains(err.Error(), "tls") {
				t.Errorf("got %v, expected an error of TLS or of the connection", err)
			}
		})
	}
}

// TestNoSessionOutlivesItsAuthority demands that a resumed TLS session is verified with the current
// authorities: a client of an authority that is no longer trusted is refused.
func TestNoSessionOutlivesItsAuthority(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			ca := accesstest.NewAuthority(t)
			other := accesstest.NewAuthority(t)
			cert, key := ca.Server(t.TempDir())
			c, err := OpenCertificates(Files{Cert: cert, Key: key, ClientCA: ca.File}, nil)
			if err != nil {
				t.Fatal(err)
			}
			web, _, _ := ca.Client(t.TempDir(), "web")
			client := &tls.Config{
				RootCAs: ca.Pool, Certificates: []tls.Certificate{web}, MinVersion: version, MaxVersion: version,
				ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "127.0.0.1",
			}
			server := c.Config() // as in a service, one configuration accepts all connections

			if _, _, err := connect(t, server, client); err != nil {
				t.Fatalf("the first connection was not accepted: %v", err)
			}
			state, _, err := connect(t, server, client)
			if err != nil || !state.DidResume {
				t.Fatalf("the second connection: resumed is %v, the error is %v; expected a resumed session", state.DidResume, err)
			}

			mustRename(t, other.File, ca.File)
			c.config.current(afterChecks(1))
			state, text, err := connect(t, server, client)
			if err == nil && text != "" {
				t.Errorf("the client received %q after its authority was removed (resumed: %v), expected nothing", text, state.DidResume)
			}
		})
	}
}
