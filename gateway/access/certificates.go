package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"
)

// Files are the paths of the PEM files with the certificates of a server.
type Files struct {
	// Name is the name of the certificates in logs and metrics. If it is empty, the name is
	// "certificates".
	Name string
	// Cert is the file with the server's certificate and the intermediate certificates, and Key is
	// the file with the private key. Both are required.
	Cert, Key string
	// ClientCA is the file with the certificates of the authorities that sign the certificates of
	// clients. If it is set, every client must present a certificate. Otherwise the server requests
	// none.
	ClientCA string
}

// Certificates are the certificates of a server, and of the authorities that it trusts. When their
// files change, the next handshake uses the new ones. Open connections are not affected.
type Certificates struct{ config *reloader[tls.Config] }

// OpenCertificates loads the files. The logger gets a line when they change. If it is nil, nothing
// is logged.
func OpenCertificates(f Files, logger *slog.Logger) (*Certificates, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("access: TLS needs a certificate and its key")
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}

	files := []string{f.Cert, f.Key}
	if f.ClientCA != "" {
		files = append(files, f.ClientCA)
	}
	name := cmp.Or(f.Name, "certificates")
	load := func() (*tls.Config, error) { return f.load(logger) }
	config, err := newReloader(name, logger, load, files...)
	if err != nil {
		return nil, err
	}
	return &Certificates{config}, nil
}

// Config returns the TLS configuration of a server. A listener keeps it as long as it listens: each
// handshake gets the certificates of that time from it.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: alpnProtocols(),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.config.current(time.Now()), nil
		},
	}
}

// dialTimeout limits the time to connect and complete the handshake.
const dialTimeout = 3 * time.Second

// Dial connects with TLS to a server, and presents the certificate in [Files.Cert] to it. The
// certificate of the server must be valid for the host of addr, and signed by an authority in
// [Files.ClientCA]. Nodes of a cluster call each other with Dial: the same authorities sign their
// certificates for both roles.
func (c *Certificates) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	current := c.config.current(time.Now())
	d := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: current.Certificates, RootCAs: current.ClientCAs,
	}}
	return d.DialContext(ctx, network, addr)
}

// Stale reports, under the name of the certificates, whether the files have changed and could not
// be loaded. See [Authenticator.Stale].
func (c *Certificates) Stale(now time.Time) map[string]bool {
	c.config.current(now)
	return map[string]bool{c.config.name: c.config.stale.Load()}
}

// Name returns [Files.Name], or its default.
func (c *Certificates) Name() string { return c.config.name }

// Expiry returns when the certificate of the server expires, or the zero time if that is not known.
func (c *Certificates) Expiry(now time.Time) time.Time {
	leaf := c.config.current(now).Certificates[0].Leaf
	if leaf == nil {
		return time.Time{}
	}
	return leaf.NotAfter
}

// alpnProtocols returns the protocols that the server offers in the handshake, the preferred one
// first.
func alpnProtocols() []string { return []string{"h2", "http/1.1"} }

// load reads the files, and returns the configuration for handshakes with them.
func (f Files) load(logger *slog.Logger) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s: %w", f.Cert, f.Key, err)
	}
	if pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter) {
		logger.Warn("the certificate has expired: clients will refuse it", "file", f.Cert, "expired", pair.Leaf.NotAfter)
	}

	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: alpnProtocols(), Certificates: []tls.Certificate{pair}}
	if f.ClientCA != "" {
		pem, err := readFile(f.ClientCA)
		if err != nil {
			return nil, err
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate of an authority in PEM", f.ClientCA)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// certificateNames returns the names by which a line of the token file can name a certificate: its
// URIs and then its DNS names or, if it has none of these, its common name.
func certificateNames(cert *x509.Certificate) []string {
	var names []string
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	names = append(names, cert.DNSNames...)
	if len(names) == 0 && cert.Subject.CommonName != "" {
		names = append(names, cert.Subject.CommonName)
	}
	return names
}

// hasValidName reports whether a certificate has the name and has not expired. The handshake has
// verified the certificate, but a connection can last longer than its certificate.
func hasValidName(cert *x509.Certificate, now time.Time, name string) bool {
	return cert != nil && !now.After(cert.NotAfter) && slices.Contains(certificateNames(cert), name)
}
