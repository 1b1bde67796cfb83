package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// checkListen returns an error for an address that other machines can reach, unless authentication and TLS are configured or the user has
// explicitly allowed it.
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
	here, err := onLoopback(ctx, c.Listen)
	if err != nil {
		return command.Usagef("--listen: %w", err)
	}
	if here {
		return nil
	}
	return command.Usagef("--listen %s can be reached from other machines, and there is %s. Give --tls-cert, --tls-key and --tokens or "+
		"--jwks; or put it behind something that has both and add --listen-anywhere and --allowed-hosts; or listen on 127.0.0.1",
		c.Listen, c.missingProtection())
}

// servesConsole reports whether to serve the console: only if callers are authenticated, or only this machine can reach the port.
func (c *serveCmd) servesConsole(ctx context.Context) (bool, error) {
	if c.NoConsole || c.authenticates() {
		return !c.NoConsole, nil
	}
	return onLoopback(ctx, c.Listen)
}

// lacks describes the missing protection, and its consequence, for people.
func (f *accessFlags) missingProtection() string {
	switch {
	case f.hasTLS():
		return "nobody asked who calls (no --tokens, no --jwks): whoever reaches the port reads and writes everything"
	case f.authenticates():
		return "no TLS (no --tls-cert): whoever sees the traffic can use its tokens"
	}
	return "neither TLS nor a question who calls: whoever reaches the port reads and writes everything"
}

// writePort writes the port file. It appears atomically, so a script that waits for it may read it as soon as it exists.
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

// listenPprof listens for requests of profiles. It refuses an address that other machines can reach, whatever tokens are configured,
// because profiles reveal the memory of the process. nil means that no address is configured.
func listenPprof(ctx context.Context, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	here, err := onLoopback(ctx, addr)
	if err != nil {
		return nil, command.Usagef("--pprof: %w", err)
	}
	if !here {
		return nil, command.Usagef("--pprof %s can be reached from other machines: give an address of this one, as 127.0.0.1:6060", addr)
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
}

// onLoopback reports whether only this machine can reach a listen address.
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
