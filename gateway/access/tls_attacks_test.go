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

// TestOnlyTrustedClientsCompleteTheHandshake checks that a client without a valid certificate of
// the authority, or without a current version of TLS, cannot complete a handshake.
func TestOnlyTrustedClientsCompleteTheHandshake(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	otherCA := accesstest.NewAuthority(t)
	cert, key := ca.Server(t.TempDir())
	c, err := OpenCertificates(Files{Cert: cert, Key: key, ClientCA: ca.File}, nil)
	if err != nil {
		t.Fatal(err)
	}

	valid, _, _ := ca.Client(t.TempDir(), "web")
	foreign, _, _ := otherCA.Client(t.TempDir(), "web")
	expired := ca.ClientUntil(t.TempDir(), "web", time.Now().Add(-time.Minute))
	notYetValid := ca.ClientFrom(t.TempDir(), "web", time.Now().Add(time.Hour))
	withoutItsKey := tls.Certificate{Certificate: valid.Certificate, PrivateKey: foreign.PrivateKey}
	newClient := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ca.Pool, Certificates: certs, MinVersion: tls.VersionTLS12}
	}
	newClientWithVersions := func(minVersion, maxVersion uint16, ciphers ...uint16) *tls.Config {
		config := newClient(valid)
		config.MinVersion = minVersion
		config.MaxVersion = maxVersion
		config.CipherSuites = ciphers
		return config
	}

	// Without this, the test would also pass if the server refused all clients.
	if _, _, err := connect(t, c.Config(), newClient(valid)); err != nil {
		t.Fatalf("a valid client: got the error %v, want none", err)
	}
	for _, attack := range []struct {
		name   string
		client *tls.Config
	}{
		{"no certificate", newClient()},
		{"a certificate of another authority, with a good name", newClient(foreign)},
		{"a certificate that has expired", newClient(expired)},
		{"a certificate that is not valid yet", newClient(notYetValid)},
		{"a certificate of a server", newClient(mustLoadPair(t, cert, key))},
		{"a good certificate without its key", newClient(withoutItsKey)},
		{"TLS 1.0 and 1.1", newClientWithVersions(tls.VersionTLS10, tls.VersionTLS11)},
		{"TLS 1.2 without forward secrecy", newClientWithVersions(tls.VersionTLS12, tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256)},
		{"TLS 1.2 with 3DES or RC4", newClientWithVersions(tls.VersionTLS12, tls.VersionTLS12,
			tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA)},
	} {
		t.Run(attack.name, func(t *testing.T) {
			_, text, err := connect(t, c.Config(), attack.client)
			if err == nil {
				t.Fatalf("the client was accepted and received %q, want an error", text)
			}
			_, isOfConnection := errors.AsType[*net.OpError](err)
			if !isOfConnection && !strings.Contains(err.Error(), "tls") {
				t.Errorf("got the error %v, want one of TLS or of the connection", err)
			}
		})
	}
}

// TestNoSessionOutlivesItsAuthority checks that a resumed TLS session is verified with the current
// authorities: a client of an authority that is no longer trusted is refused.
func TestNoSessionOutlivesItsAuthority(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			ca := accesstest.NewAuthority(t)
			otherCA := accesstest.NewAuthority(t)
			cert, key := ca.Server(t.TempDir())
			c, err := OpenCertificates(Files{Cert: cert, Key: key, ClientCA: ca.File}, nil)
			if err != nil {
				t.Fatal(err)
			}
			server := c.Config() // as in a service, one configuration accepts all connections
			clientCert, _, _ := ca.Client(t.TempDir(), "web")
			client := &tls.Config{
				RootCAs: ca.Pool, Certificates: []tls.Certificate{clientCert}, MinVersion: version, MaxVersion: version,
				ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "127.0.0.1",
			}

			// The second connection resumes the session of the first one.
			if _, _, err := connect(t, server, client); err != nil {
				t.Fatalf("first connection: got the error %v, want none", err)
			}
			state, _, err := connect(t, server, client)
			if err != nil || !state.DidResume {
				t.Fatalf("second connection: resumed is %t, and the error is %v; want a resumed session", state.DidResume, err)
			}

			// The authority of the client is no longer trusted.
			mustRename(t, otherCA.File, ca.File)
			c.config.current(afterChecks(1))
			state, text, err := connect(t, server, client)
			if err == nil || text != "" {
				t.Errorf("the client received %q (resumed: %t) and the error %v after its authority was removed, want an error",
					text, state.DidResume, err)
			}
		})
	}
}
