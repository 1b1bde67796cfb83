package programs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
)

// RESPConn speaks the protocol of Redis over one connection, with pipelines that were encoded before.
type RESPConn struct {
	net.Conn
	in *bufio.Reader
}

// DialRESP connects to a Redis server.
func DialRESP(ctx context.Context, addr Address) (*RESPConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return &RESPConn{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// AppendCommand appends a command as it goes over the wire.
func AppendCommand(dst []byte, args ...string) []byte {
	dst = append(strconv.AppendInt(append(dst, '*'), int64(len(args)), 10), "\r\n"...)
	for _, a := range args {
		dst = append(strconv.AppendInt(append(dst, '$'), int64(len(a)), 10), "\r\n"...)
		dst = append(append(dst, a...), "\r\n"...)
	}
	return dst
}

// RoundTrip sends a pipeline and reads its replies. An error among them is an error.
func (c *RESPConn) RoundTrip(pipeline []byte, replies int) error {
	if _, err := c.Write(pipeline); err != nil {
		return err
	}
	for range replies {
		if err := skipReply(c.in); err != nil {
			return err
		}
	}
	return nil
}

// skipReply reads one reply and forgets it.
func skipReply(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return fmt.Errorf("resp: malformed line %q", line)
	}
	kind, rest := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+', ':':
		return nil
	case '-':
		return fmt.Errorf("redis: %s", rest)
	case '$', '*':
	default:
		return fmt.Errorf("resp: unknown reply %q", line)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return fmt.Errorf("resp: length: %w", err)
	}
	if kind == '$' {
		if n >= 0 {
			_, err = io.CopyN(io.Discard, r, int64(n)+2)
		}
		return err
	}
	if n < 0 {
		return fmt.Errorf("redis: a transaction was not executed")
	}
	for range n {
		if err := skipReply(r); err != nil {
			return err
		}
	}
	return nil
}
