package access

import (
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skein-feed/skein/gateway/access/accesstest"
)

// connect makes a TLS connection of a client to a server, which sends a text. It returns the state
// of the connection and the text that the client has received. In TLS 1.3, the client learns only
// from the answer of the server whether the server accepts its certificate, and whether it may
// resume the session later.
func connect(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, text string, err error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "hello")
	}()

	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return tls.ConnectionState{}, "", err
	}
	defer conn.Close()
	received, err := io.ReadAll(conn)
	return conn.ConnectionState(), string(received), err
}

// expectRefusedConnection fails the test if the server accepts the client.
func expectRefusedConnection(t *testing.T, server, client *tls.Config) {
	t.Helper()
	if _, text, err := connect(t, server, client); err == nil {
		t.Errorf("the client was accepted and received %q, want an error", text)
	}
}

func TestChangedCertificatesServeNewHandshakes(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	otherCA := accesstest.NewAuthority(t)
	cert, key := ca.Server(t.TempDir())
	c, err := OpenCertificates(Files{Cert: cert, Key: key, ClientCA: ca.File}, nil)
	if err != nil {
		t.Fatal(err)
	}
	valid, _, _ := ca.Client(t.TempDir(), "web")
	foreign, _, _ := otherCA.Client(t.TempDir(), "web")
	newClient := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ca.Pool, Certificates: certs, MinVersion: tls.VersionTLS12}
	}
	// serverSerial makes a connection, and returns the serial number of the server's certificate.
	serverSerial := func() string {
		t.Helper()
		state, _, err := connect(t, c.Config(), newClient(valid))
		if err != nil {
			t.Fatalf("the client was not accepted: %v", err)
		}
		return state.PeerCertificates[0].SerialNumber.String()
	}

	firstSerial := serverSerial()
	for name, client := range map[string]*tls.Config{
		"no certificate":         newClient(),
		"of another authority":   newClient(foreign),
		"an old version of TLS":  {RootCAs: ca.Pool, Certificates: []tls.Certificate{valid}, MaxVersion: tls.VersionTLS11},
		"a server's certificate": newClient(mustLoadPair(t, cert, key)),
	} {
		t.Run(name, func(t *testing.T) { expectRefusedConnection(t, c.Config(), client) })
	}

	// As long as only one of the two files of a pair is new, the previous pair stays in use.
	newCert, newKey := ca.Server(t.TempDir())
	mustRename(t, newCert, cert)
	c.config.current(afterChecks(1))
	if got := serverSerial(); got != firstSerial {
		t.Errorf("serial number with a new certificate and an old key: got %s, want %s as before", got, firstSerial)
	}
	mustRename(t, newKey, key)
	c.config.current(afterChecks(2))
	if got := serverSerial(); got == firstSerial {
		t.Errorf("serial number with a new pair: got %s as before, want another", got)
	}

	// The authority of the client is no longer trusted.
	mustRename(t, otherCA.File, ca.File)
	c.config.current(afterChecks(3))
	expectRefusedConnection(t, c.Config(), newClient(valid))
}

func mustLoadPair(t *testing.T, cert, key string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func mustRename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestOpenCertificatesRefusesUnusableFiles(t *testing.T) {
	const secret = "geheim"
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Server(t.TempDir())
	_, otherKey := ca.Server(t.TempDir())
	junk := filepath.Join(t.TempDir(), "junk")
	mustWriteFile(t, junk, secret)

	for name, f := range map[string]Files{
		"nothing":               {},
		"no key":                {Cert: cert},
		"no certificate":        {Key: key},
		"a key of another pair": {Cert: cert, Key: otherKey},
		"a bad certificate":     {Cert: junk, Key: key},
		"a bad key":             {Cert: cert, Key: junk},
		"a bad authority":       {Cert: cert, Key: key, ClientCA: junk},
		"a missing authority":   {Cert: cert, Key: key, ClientCA: "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenCertificates(f, nil)
			if err == nil {
				t.Fatal("OpenCertificates: got no error, want one")
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("OpenCertificates: got the error %v, want one that does not quote the files", err)
			}
		})
	}
}
