package gateway

import (
	"bytes"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// decodable is what a request is decoded into. Connect answers a message that does not decode by itself: without the
// details that every error carries, and unseen by metrics. So the codecs leave the error with the request, and the
// method answers it.
type decodable interface {
	message() proto.Message
	undecoded(error)
}

// received is a request as it arrived: a message, or why it is none.
type received[T any, P message[T]] struct {
	msg T
	err error
}

// message is the pointer to a generated message.
type message[T any] interface {
	*T
	proto.Message
}

func (r *received[T, P]) message() proto.Message { return P(&r.msg) }

func (r *received[T, P]) undecoded(err error) { r.err = err }

// protoCodec is the binary encoding.
type protoCodec struct{}

func (protoCodec) Name() string { return "proto" }

func (protoCodec) Marshal(v any) ([]byte, error) {
	m, err := asMessage(v)
	if err != nil {
		return nil, err
	}
	return appendProto(nil, m)
}

func (protoCodec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, err := asMessage(v)
	if err != nil {
		return nil, err
	}
	return appendProto(dst, m)
}

func (protoCodec) Unmarshal(data []byte, v any) error { return decode(data, v, unmarshalProto) }

// jsonCodec is JSON that emits default values, so that "no" and 0 are visible. Connect knows it by two names.
type jsonCodec struct{ name string }

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

func (jsonCodec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, err := asMessage(v)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{EmitDefaultValues: true}.MarshalAppend(dst, m)
}

// Unmarshal refuses fields and names that it does not know. JSON is written by people, too: misspelt, a filter or a
// position that is demanded would otherwise be left out without a word.
func (jsonCodec) Unmarshal(data []byte, v any) error {
	return decode(data, v, func(data []byte, m proto.Message) error {
		if len(bytes.TrimSpace(data)) == 0 {
			return errors.New("an empty body is no JSON object")
		}
		if err := countJSON(data, m); err != nil {
			return err
		}
		err := protojson.Unmarshal(data, m)
		if err == nil {
			return nil
		}
		if f := misfit(data, m); f != nil {
			f.Cause = err
			return f
		}
		return err
	})
}

func decode(data []byte, v any, unmarshal func([]byte, proto.Message) error) error {
	if d, ok := v.(decodable); ok {
		if err := unmarshal(data, d.message()); err != nil {
			d.undecoded(err)
		}
		return nil
	}
	m, err := asMessage(v)
	if err != nil {
		return err
	}
	return unmarshal(data, m)
}

func asMessage(v any) (proto.Message, error) {
	if m, ok := v.(proto.Message); ok {
		return m, nil
	}
	return nil, fmt.Errorf("gateway: %T is no message", v)
}

func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(protoCodec{}),
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
	)
}
