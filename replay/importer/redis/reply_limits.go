package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Limits of what a server may answer. The client library believes every length that a server announces, and reads a line to its end however
// long that is. So a broken server, or one that is no Redis, could take all memory.
const (
	// maxReplyLine is the most bytes of a line: a status, an error, a number or a length.
	maxReplyLine = 64 << 10
	// maxReplyString is the most bytes of a key or an element.
	maxReplyString = 64 << 20
	// maxReplyElements is the most elements of a list. A page has about --page, and twice as many with scores.
	maxReplyElements = 1 << 20
	// maxReplyBytes is the most bytes in reply to the commands of one round trip.
	maxReplyBytes = 512 << 20
)

// replyTooLargeError means that a server answers more than the import reads. It wraps no error, because the client library unwraps the
// errors of its first command and would lose the limit.
type replyTooLargeError struct{ what string }

// Error names the limit.
func (e *replyTooLargeError) Error() string {
	return "the server's answer is too large, it may be no Redis: " + e.what
}

func tooLarge(format string, args ...any) error {
	return &replyTooLargeError{fmt.Sprintf(format, args...)}
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*replyTooLargeError](err)
	return ok
}

// dialLimited returns a function that connects like the options, and limits what is read.
func dialLimited(o *goredis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := goredis.NewDialer(o)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &limitedConn{Conn: conn}, nil
	}
}

// limitedConn is a connection to a Redis server that passes on no reply beyond the limits. It follows the framing of the protocol: lines,
// and strings whose lengths the line before them announces.
type limitedConn struct {
	net.Conn

	// read counts the bytes since the last command was sent.
	read int64
	// lineStart has the first bytes of a line that is not complete yet, and lineBytes counts all of them.
	lineStart []byte
	lineBytes int
	// stringBytes is how much is left of an announced string, with the end of its line.
	stringBytes int64
}

// lineStartBytes is enough of a line for its type and a length.
const lineStartBytes = 32

// Write sends commands.
func (c *limitedConn) Write(b []byte) (int, error) {
	c.read = 0
	return c.Conn.Write(b)
}

// Read reads a part of the replies, or fails with a replyTooLargeError.
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if limitErr := c.follow(b[:n]); limitErr != nil {
		return 0, limitErr
	}
	return n, err
}

// follow checks the next bytes of the replies.
func (c *limitedConn) follow(b []byte) error {
	if c.read += int64(len(b)); c.read > maxReplyBytes {
		return tooLarge("more than %d bytes in reply to one round trip", maxReplyBytes)
	}
	for len(b) > 0 {
		if c.stringBytes > 0 {
			n := min(c.stringBytes, int64(len(b)))
			c.stringBytes -= n
			b = b[n:]
			continue
		}

		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end+1]
		}
		c.lineStart = append(c.lineStart, part[:min(len(part), lineStartBytes-len(c.lineStart))]...)
		if c.lineBytes += len(part); c.lineBytes > maxReplyLine {
			return tooLarge("a line of more than %d bytes", maxReplyLine)
		}
		b = b[len(part):]
		if end >= 0 {
			if err := c.endLine(); err != nil {
				return err
			}
		}
	}
	return nil
}

// endLine checks the length that a complete line announces, if it announces one.
func (c *limitedConn) endLine() error {
	line := strings.TrimSpace(string(c.lineStart))
	c.lineStart, c.lineBytes = c.lineStart[:0], 0
	if line == "" {
		return nil
	}
	length, err := strconv.ParseInt(line[1:], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil // no length, or none that the client library accepts
	}
	switch line[0] {
	case lineString, lineVerbatim, lineLongError:
		if length > maxReplyString {
			return tooLarge("a string of %s bytes, at most %d are read", line[1:], maxReplyString)
		}
		if length >= 0 {
			c.stringBytes = length + int64(len("\r\n"))
		}
	case lineArray, lineMap, lineSet, linePush, lineAttributes:
		if length > maxReplyElements {
			return tooLarge("a list of %s elements, at most %d are read", line[1:], maxReplyElements)
		}
	}
	return nil
}

// First bytes of the lines of the protocol that announce a length: of a string in bytes, or of a list in elements.
const (
	lineString     = '$'
	lineVerbatim   = '='
	lineLongError  = '!'
	lineArray      = '*'
	lineMap        = '%'
	lineSet        = '~'
	linePush       = '>'
	lineAttributes = '|'
)
