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

// Files are where a server's certificates are, in PEM.
type Files struct {
	// Name is how logs and metrics call them. Default: "certificates".
	Name string
	// Cert is the certificate with those that lead to its authority, Key its key. Both are required.
	Cert, Key string
	// ClientCA are the authorities that sign clients' certificates. With them every client must present a certificate; without them
	// the server requests none.
	ClientCA string
}

// Certificates are those of a server. They are read again when their files change, at the next handshake: connections that are open
// stay.
type Certificates struct{ config *reloader[tls.Config] }

// OpenCertificates reads the files. The logger gets a line when they change; nil disables it.
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
	config, err := newReloader(cmp.Or(f.Name, "certificates"), logger, func() (*tls.Config, error) { return f.load(logger) }, files...)
	if err != nil {
		return nil, err
	}
	return &Certificates{config}, nil
}

// Config returns the configuration of a server that has the certificates of each time.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: alpnProtocols(),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.config.current(time.Now()), nil
		},
	}
}

// dialTimeout bounds a connection with its handshake, which takes processor time on both sides.
const dialTimeout = 3 * time.Second

// Dial connects to a server whose certificate is of the authorities of clients, too, and for the host of the address. It shows its own.
func (c *Certificates) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	now := c.config.current(time.Now())
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: now.Certificates, RootCAs: now.ClientCAs}}
	return d.DialContext(ctx, network, addr)
}

// Stale is as that of [Gate.Stale].
func (c *Certificates) Stale(now time.Time) map[string]bool {
	c.config.current(now)
	return map[string]bool{c.config.name: c.config.stale.Load()}
}

// Name is that of [Files].
func (c *Certificates) Name() string { return c.config.name }

// Expiry is when the certificate of the server expires; zero: that is not known.
func (c *Certificates) Expiry(now time.Time) time.Time {
	if leaf := c.config.current(now).Certificates[0].Leaf; leaf != nil {
		return leaf.NotAfter
	}
	return time.Time{}
}

func alpnProtocols() []string { return []string{"h2", "http/1.1"} }

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

// namesOf are the names of a certificate that a line of the token file may have: its URIs, then its DNS names, and its common
// name if it has none of these.
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

// named reports whether a certificate has a name and is still good: a connection may last longer.
func hasValidName(cert *x509.Certificate, now time.Time, name string) bool {
	return cert != nil && !now.After(cert.NotAfter) && slices.Contains(certificateNames(cert), name)
}
