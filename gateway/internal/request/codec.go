package request

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
type requestTarget interface {
	Message() proto.Message
	Undecoded(error)
}

// Received is a request as it arrived: a message, or why it is none.
type Received[T any, P Message[T]] struct {
	Msg T
	// Err is why the bytes were no message; nil if they were.
	Err error
}

// Message is the pointer to a generated message.
type Message[T any] interface {
	*T
	proto.Message
}

// Message is what the codecs decode into.
func (r *Received[T, P]) Message() proto.Message { return P(&r.Msg) }

// Undecoded notes why the bytes were no message.
func (r *Received[T, P]) Undecoded(err error) { r.Err = err }

// protoCodec is the binary encoding.
type protoCodec struct{}

func (protoCodec) Name() string { return "proto" }

func (protoCodec) Marshal(v any) ([]byte, error) {
	m, err := AsMessage(v)
	if err != nil {
		return nil, err
	}
	return AppendProto(nil, m)
}

func (protoCodec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, err := AsMessage(v)
	if err != nil {
		return nil, err
	}
	return AppendProto(dst, m)
}

func (protoCodec) Unmarshal(data []byte, v any) error { return decodeInto(data, v, UnmarshalProto) }

// JSONCodec is JSON that emits default values, so that "no" and 0 are visible. Connect knows it by two names.
type JSONCodec struct{ name string }

// Name is what Connect finds the codec by.
func (c JSONCodec) Name() string { return c.name }

// Marshal returns v as JSON.
func (c JSONCodec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

// MarshalAppend appends v as JSON to dst.
func (JSONCodec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, err := AsMessage(v)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{EmitDefaultValues: true}.MarshalAppend(dst, m)
}

// Unmarshal refuses fields and names that it does not know. JSON is written by people, too: misspelt, a filter or a
// position that is demanded would otherwise be left out without a word.
func (JSONCodec) Unmarshal(data []byte, v any) error {
	return decodeInto(data, v, func(data []byte, m proto.Message) error {
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
		if f := decodeErrorText(data, m); f != nil {
			f.Cause = err
			return f
		}
		return err
	})
}

func decodeInto(data []byte, v any, unmarshal func([]byte, proto.Message) error) error {
	if d, ok := v.(requestTarget); ok {
		if err := unmarshal(data, d.Message()); err != nil {
			d.Undecoded(err)
		}
		return nil
	}
	m, err := AsMessage(v)
	if err != nil {
		return err
	}
	return unmarshal(data, m)
}

// AsMessage returns v as the message that it must be.
func AsMessage(v any) (proto.Message, error) {
	if m, ok := v.(proto.Message); ok {
		return m, nil
	}
	return nil, fmt.Errorf("gateway: %T is no message", v)
}

// Codecs are the encodings that a handler of Connect takes: binary and JSON.
func Codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(protoCodec{}),
		connect.WithCodec(JSONCodec{"json"}),
		connect.WithCodec(JSONCodec{"json; charset=utf-8"}),
	)
}
