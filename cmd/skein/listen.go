package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// checkListen returns an error for an address that other machines can reach, unless authentication
// and TLS are configured or the user has explicitly allowed it.
func (c *serveCmd) checkListen(ctx context.Context) error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return command.Usagef("--listen: %w", err)
	}
	if err := c.checkAccess(); err != nil {
		return err
	}
	if c.ListenAnywhere || c.hasTLS() && c.authenticates() {
		return nil
	}
	isLoopback, err := onLoopback(ctx, c.Listen)
	if err != nil {
		return command.Usagef("--listen: %w", err)
	}
	if isLoopback {
		return nil
	}
	return command.Usagef("--listen %s can be reached from other machines, but there is %s. Give --tls-cert, --tls-key and --tokens or "+
		"--jwks; or put the service behind a proxy that has both, and add --listen-anywhere and --allowed-hosts; or listen on 127.0.0.1",
		c.Listen, c.missingProtection())
}

// servesConsole reports whether to serve the console: only if callers are authenticated, or only
// this machine can reach the port.
func (c *serveCmd) servesConsole(ctx context.Context) (bool, error) {
	if c.NoConsole || c.authenticates() {
		return !c.NoConsole, nil
	}
	return onLoopback(ctx, c.Listen)
}

// missingProtection describes for people what the flags do not protect against.
func (f *accessFlags) missingProtection() string {
	switch {
	case f.hasTLS():
		return "no authentication (--tokens or --jwks): whoever reaches the port can read and write everything"
	case f.authenticates():
		return "no TLS (--tls-cert): whoever sees the traffic can use the tokens"
	}
	return "neither TLS nor authentication: whoever reaches the port can read and write everything"
}

// writePort writes the port file. The file appears with its content, so a script that waits for the
// file may read it as soon as it exists.
func (c *serveCmd) writePort(l net.Listener) error {
	if c.PortFile == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	tmp := c.PortFile + ".tmp"
	if err := os.WriteFile(tmp, []byte(port+"\n"), 0o600); err != nil {
		return fmt.Errorf("--port-file: %w", err)
	}
	// The port is no secret, and a script of another user may wait for the file.
	if err := os.Chmod(tmp, 0o644); err != nil {
		return fmt.Errorf("--port-file: %w", err)
	}
	return os.Rename(tmp, c.PortFile)
}

// listenPprof listens for requests of profiles; without an address it returns nil. It refuses an
// address that other machines can reach, whatever tokens are configured, because profiles reveal
// the memory of the process.
func listenPprof(ctx context.Context, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil //nolint:nilnil // no address is configured, which is no error
	}
	isLoopback, err := onLoopback(ctx, addr)
	if err != nil {
		return nil, command.Usagef("--pprof: %w", err)
	}
	if !isLoopback {
		return nil, command.Usagef("--pprof %s can be reached from other machines: give a loopback address, such as 127.0.0.1:6060", addr)
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
}

// onLoopback reports whether only this machine can reach a listen address. An address without a
// host means all addresses of the machine.
func onLoopback(ctx context.Context, addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false, err
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false, err
	}
	for _, ip := range ips {
		if !ip.IP.IsLoopback() {
			return false, nil
		}
	}
	return true, nil
}

func closePprof(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}
