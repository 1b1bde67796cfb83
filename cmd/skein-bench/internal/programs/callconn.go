package programs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// CallConn is a connection to the service over which calls are made one after the other. It shares
// the processor with the service, so it does as little as possible: the calls are encoded
// beforehand, and the caller may have answers dropped without decoding them.
type CallConn struct {
	conn net.Conn
	in   *bufio.Reader
	// out is a buffer for the request.
	out []byte
}

// dialCallConn opens a connection.
func dialCallConn(ctx context.Context, addr Address) (*CallConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return &CallConn{conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}, nil
}

// Encoding is one of the encodings of messages that the service accepts.
type Encoding struct {
	Name, ContentType string
	Marshal           func(proto.Message) ([]byte, error)
	Unmarshal         func([]byte, proto.Message) error
}

// Protobuf returns the binary encoding.
func Protobuf() Encoding {
	return Encoding{Name: "protobuf", ContentType: "application/proto", Marshal: proto.Marshal, Unmarshal: proto.Unmarshal}
}

// JSON returns the text encoding.
func JSON() Encoding {
	return Encoding{Name: "JSON", ContentType: "application/json", Marshal: protojson.Marshal, Unmarshal: protojson.Unmarshal}
}

// EncodedCalls are encoded calls of one method.
type EncodedCalls struct {
	// head is the beginning of every request, up to the value of its last header, Content-Length.
	head   []byte
	bodies [][]byte
	// atLeastField is the number of the field at_least, the position that the answer must contain.
	// It is 0 if the method has no such field, or if the calls are not in protobuf.
	atLeastField protowire.Number
}

// EncodeCalls encodes calls of a method, whose procedure is its path.
func EncodeCalls(addr Address, procedure string, encoding Encoding, requests []proto.Message) (*EncodedCalls, error) {
	c := &EncodedCalls{head: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n"+
		"Connect-Protocol-Version: 1\r\nContent-Length: ", procedure, addr, encoding.ContentType)}

	for _, r := range requests {
		body, err := encoding.Marshal(r)
		if err != nil {
			return nil, err
		}
		c.bodies = append(c.bodies, body)

		field := r.ProtoReflect().Descriptor().Fields().ByName("at_least")
		if field != nil && encoding.ContentType == Protobuf().ContentType {
			c.atLeastField = field.Number()
		}
	}
	if len(c.bodies) == 0 {
		return nil, fmt.Errorf("%s is asked nothing", procedure)
	}
	return c, nil
}

// Call makes the i-th of the calls; after the last one it begins again with the first. Call reads
// the answer into body, or drops it if body is nil. If atLeast is not empty, it is the position
// that the answer must contain.
func (cc *CallConn) Call(c *EncodedCalls, i int, atLeast string, body *bytes.Buffer) error {
	request := c.bodies[i%len(c.bodies)]
	size := len(request)
	if atLeast != "" {
		if c.atLeastField == 0 {
			return errors.New("these calls cannot ask for a position")
		}
		size += protowire.SizeTag(c.atLeastField) + protowire.SizeBytes(len(atLeast))
	}

	// A field may be anywhere in a message of protobuf, so at_least is appended to the encoded
	// request.
	cc.out = append(cc.out[:0], c.head...)
	cc.out = strconv.AppendInt(cc.out, int64(size), 10)
	cc.out = append(cc.out, "\r\n\r\n"...)
	cc.out = append(cc.out, request...)
	if atLeast != "" {
		cc.out = protowire.AppendTag(cc.out, c.atLeastField, protowire.BytesType)
		cc.out = protowire.AppendString(cc.out, atLeast)
	}
	if _, err := cc.conn.Write(cc.out); err != nil {
		return err
	}

	res, err := http.ReadResponse(cc.in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(res.Body, outputTailBytes))
		return errors.Join(fmt.Errorf("answered with %s: %s", res.Status, text), err)
	}

	if body == nil {
		_, err = io.Copy(io.Discard, res.Body)
	} else {
		_, err = body.ReadFrom(res.Body)
	}
	return err
}

// CallConns are several connections to the service.
type CallConns []*CallConn

// CallAll makes every call once, and returns the answers in the order of the calls. All connections
// are used at the same time, each for one call after the other.
func (all CallConns) CallAll(c *EncodedCalls) ([][]byte, error) {
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	answers := make([][]byte, len(c.bodies))
	errs := make([]error, len(all))
	for worker, cc := range all {
		wg.Go(func() {
			for errs[worker] == nil {
				i := int(next.Add(1) - 1)
				if i >= len(c.bodies) {
					return
				}
				var body bytes.Buffer
				errs[worker] = cc.Call(c, i, "", &body)
				answers[i] = body.Bytes()
			}
		})
	}
	wg.Wait()
	return answers, errors.Join(errs...)
}

// DialCallConns opens n connections.
func DialCallConns(ctx context.Context, addr Address, n int) (all CallConns, err error) {
	for range n {
		cc, err := dialCallConn(ctx, addr)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, cc)
	}
	return all, nil
}

// Close closes all connections.
func (all CallConns) Close() error {
	var errs []error
	for _, cc := range all {
		errs = append(errs, cc.conn.Close())
	}
	return errors.Join(errs...)
}
