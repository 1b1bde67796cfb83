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

// CallConn is a connection that is kept, on which one call at a time is under way. It does little, since it shares the processor
// with the service: what it sends is encoded beforehand, and what comes back is read and dropped.
type CallConn struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func dialCallConn(ctx context.Context, addr Address) (*CallConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return &CallConn{conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}, nil
}

// Encoding is how the messages of a call are encoded.
type Encoding struct {
	Name, ContentType string
	Marshal           func(proto.Message) ([]byte, error)
	Unmarshal         func([]byte, proto.Message) error
}

// Protobuf is the binary encoding.
func Protobuf() Encoding {
	return Encoding{Name: "protobuf", ContentType: "application/proto", Marshal: proto.Marshal, Unmarshal: proto.Unmarshal}
}

// JSON is the text encoding.
func JSON() Encoding {
	return Encoding{Name: "JSON", ContentType: "application/json", Marshal: protojson.Marshal, Unmarshal: protojson.Unmarshal}
}

// EncodedCalls are encoded calls of a method.
type EncodedCalls struct {
	head   []byte
	bodies [][]byte
	// atLeast is the number of the field that asks for a position. It is 0 if the method has no such field, or if the calls are
	// not in protobuf.
	atLeast protowire.Number
}

// EncodeCalls encodes calls of a method.
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
			c.atLeast = field.Number()
		}
	}
	if len(c.bodies) == 0 {
		return nil, fmt.Errorf("%s is asked nothing", procedure)
	}
	return c, nil
}

// Call makes a call, with the newest position that the answer must contain unless that is empty, and reads the answer into body,
// or drops it if that is nil.
func (w *CallConn) Call(c *EncodedCalls, i int, atLeast string, body *bytes.Buffer) error {
	request := c.bodies[i%len(c.bodies)]
	size := len(request)
	if atLeast != "" {
		if c.atLeast == 0 {
			return errors.New("these calls cannot ask for a position")
		}
		size += protowire.SizeTag(c.atLeast) + protowire.SizeBytes(len(atLeast))
	}
	w.out = append(w.out[:0], c.head...)
	w.out = strconv.AppendInt(w.out, int64(size), 10)
	w.out = append(w.out, "\r\n\r\n"...)
	w.out = append(w.out, request...)
	if atLeast != "" {
		w.out = protowire.AppendString(protowire.AppendTag(w.out, c.atLeast, protowire.BytesType), atLeast)
	}
	if _, err := w.conn.Write(w.out); err != nil {
		return err
	}
	res, err := http.ReadResponse(w.in, nil)
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

// CallConns are connections to the service.
type CallConns []*CallConn

// CallAll makes every call once, each over the next connection that is free, and returns the answers in the order of the calls.
func (all CallConns) CallAll(c *EncodedCalls) ([][]byte, error) {
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	answers, errs := make([][]byte, len(c.bodies)), make([]error, len(all))
	for worker, w := range all {
		wg.Go(func() {
			for errs[worker] == nil {
				i := int(next.Add(1) - 1)
				if i >= len(c.bodies) {
					return
				}
				var body bytes.Buffer
				errs[worker] = w.Call(c, i, "", &body)
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
		w, err := dialCallConn(ctx, addr)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, w)
	}
	return all, nil
}

// Close closes all connections.
func (all CallConns) Close() error {
	var errs []error
	for _, w := range all {
		errs = append(errs, w.conn.Close())
	}
	return errors.Join(errs...)
}
