package programs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
)

// RESPConn is a connection to a Redis server, over which encoded pipelines are sent. RESP is the
// protocol of Redis; a pipeline is several commands that are sent together. Encoding them
// beforehand leaves the processor to the server while it is measured.
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

// AppendCommand appends a command in the encoding of RESP: an array of strings.
func AppendCommand(dst []byte, args ...string) []byte {
	dst = appendLength(dst, '*', len(args))
	for _, arg := range args {
		dst = appendLength(dst, '$', len(arg))
		dst = append(dst, arg...)
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// appendLength appends the line with the type and the length of an array or a string.
func appendLength(dst []byte, kind byte, length int) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, int64(length), 10)
	return append(dst, "\r\n"...)
}

// RoundTrip sends a pipeline and reads the given number of replies. It returns an error if one of
// the replies is an error.
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

// skipReply reads one reply and drops it. An error in the reply, or in an array of replies, is
// returned.
func skipReply(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}

	// A reply begins with a line that has the type, a value, and a carriage return.
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return fmt.Errorf("resp: malformed line %q", line)
	}
	kind := line[0]
	value := string(line[1 : len(line)-2])
	switch kind {
	case '+', ':': // a status or a number
		return nil
	case '-':
		return fmt.Errorf("redis: %s", value)
	case '$', '*': // a string or an array, whose length is the value
	default:
		return fmt.Errorf("resp: unknown reply %q", line)
	}

	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("resp: length: %w", err)
	}
	if kind == '$' {
		// The length -1 means that there is no value.
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
