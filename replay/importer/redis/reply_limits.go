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

// The limits of what a server may answer. The client library believes every length that a server
// announces, and reads a line to its end however long it is. So a broken server, or one that is not
// a Redis, could use up all memory.
const (
	// maxReplyLine is the largest size of a line in bytes: a status, an error, a number or a
	// length.
	maxReplyLine = 64 << 10
	// maxReplyString is the largest size of a key or an element in bytes.
	maxReplyString = 64 << 20
	// maxReplyElements is the largest number of elements in a list. A page has about --page
	// elements, and twice as many with scores.
	maxReplyElements = 1 << 20
	// maxReplyBytes is the largest size of all replies to the commands of one round trip in bytes.
	maxReplyBytes = 512 << 20
)

// replyTooLargeError means that an answer of the server exceeds a limit. It does not wrap an error:
// the client library unwraps errors of its first command, and the limit would be lost.
type replyTooLargeError struct{ what string }

// Error names the limit.
func (e *replyTooLargeError) Error() string {
	return "the server's answer is too large, it may be no Redis: " + e.what
}

// tooLarge returns a replyTooLargeError that names the limit.
func tooLarge(format string, args ...any) error {
	return &replyTooLargeError{fmt.Sprintf(format, args...)}
}

// isTooLarge reports whether the error is a replyTooLargeError.
func isTooLarge(err error) bool {
	_, ok := errors.AsType[*replyTooLargeError](err)
	return ok
}

// dialLimited returns a function that connects as the options say, and limits what is read.
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

// limitedConn is a connection to a Redis server on which replies beyond the limits cannot be read.
// It follows the framing of the protocol: lines, and strings whose length is announced by the line
// before them.
type limitedConn struct {
	net.Conn

	// read is the number of bytes since the last command was sent.
	read int64
	// lineStart contains the first bytes of a line that is not complete yet. lineBytes is the
	// number of all its bytes.
	lineStart []byte
	lineBytes int
	// stringBytes is the number of bytes that are left of an announced string, including the end of
	// its line.
	stringBytes int64
}

// lineStartBytes is how many bytes of a line are kept, which is enough for its type and a length.
const lineStartBytes = 32

// Write sends commands.
func (c *limitedConn) Write(b []byte) (int, error) {
	c.read = 0
	return c.Conn.Write(b)
}

// Read reads some bytes of the replies. It returns a replyTooLargeError if they exceed a limit.
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if limitErr := c.checkReply(b[:n]); limitErr != nil {
		return 0, limitErr
	}
	return n, err
}

// checkReply checks the next bytes of the replies.
func (c *limitedConn) checkReply(b []byte) error {
	c.read += int64(len(b))
	if c.read > maxReplyBytes {
		return tooLarge("more than %d bytes in reply to one round trip", maxReplyBytes)
	}
	for len(b) > 0 {
		// The bytes of an announced string were limited when it was announced.
		if c.stringBytes > 0 {
			n := min(c.stringBytes, int64(len(b)))
			c.stringBytes -= n
			b = b[n:]
			continue
		}

		// A line may come in several reads. Keep only its beginning, however long it is.
		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end+1]
		}
		c.lineStart = append(c.lineStart, part[:min(len(part), lineStartBytes-len(c.lineStart))]...)
		c.lineBytes += len(part)
		if c.lineBytes > maxReplyLine {
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

// endLine checks the length that a complete line announces. Most lines announce none.
func (c *limitedConn) endLine() error {
	line := strings.TrimSpace(string(c.lineStart))
	c.lineStart = c.lineStart[:0]
	c.lineBytes = 0
	if line == "" {
		return nil
	}
	length, err := strconv.ParseInt(line[1:], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil // the line announces no length, or one that the client library does not accept
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

// The first bytes of those lines that announce a length: the length of a string in bytes, or the
// length of a list in elements.
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
