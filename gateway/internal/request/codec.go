package request

import (
	"bytes"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// requestTarget is the value into which the codecs decode a request. If a codec returned an error
// to Connect, Connect would answer the call by itself, without the details that every error of
// skein has, and without counting the error in the metrics. So the codecs store the error in the
// target, and package gateway answers with it.
type requestTarget interface {
	Message() proto.Message
	SetDecodeError(error)
}

// Received is a request as it arrived: either the decoded message, or the error of decoding it. It
// implements requestTarget.
type Received[T any, P Message[T]] struct {
	Msg T
	// Err is the error of decoding, or nil if Msg is valid.
	Err error
}

// Message is the constraint for a pointer to a generated message of type T.
type Message[T any] interface {
	*T
	proto.Message
}

// Message returns the message into which the codecs decode.
func (r *Received[T, P]) Message() proto.Message { return P(&r.Msg) }

// SetDecodeError records that the message could not be decoded because of err.
func (r *Received[T, P]) SetDecodeError(err error) { r.Err = err }

// protoCodec is the [connect.Codec] of the binary encoding.
type protoCodec struct{}

// Name implements connect.Codec.
func (protoCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (protoCodec) Marshal(v any) ([]byte, error) {
	m, err := AsMessage(v)
	if err != nil {
		return nil, err
	}
	return AppendProto(nil, m)
}

// MarshalAppend appends the encoding of a message to dst. Connect calls it instead of Marshal, to
// reuse buffers.
func (protoCodec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, err := AsMessage(v)
	if err != nil {
		return nil, err
	}
	return AppendProto(dst, m)
}

// Unmarshal implements connect.Codec.
func (protoCodec) Unmarshal(data []byte, v any) error { return decodeInto(data, v, UnmarshalProto) }

// JSONCodec is the [connect.Codec] of the JSON encoding. It also encodes fields that have their
// default value, so that answers show false and 0.
type JSONCodec struct {
	// name is the part of the content type by which Connect selects the codec. JSON has two names
	// (see Codecs), so the name is a field.
	name string
}

// Name returns the name by which Connect finds the codec.
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

// Unmarshal decodes JSON. It refuses unknown fields and enum values. People also write JSON by
// hand: if the codec ignored unknown fields, a misspelled filter or at_least would silently have no
// effect.
func (JSONCodec) Unmarshal(data []byte, v any) error { return decodeInto(data, v, unmarshalJSON) }

// unmarshalJSON decodes a message in JSON into m, which must be empty.
func unmarshalJSON(data []byte, m proto.Message) error {
	// For an empty body, the decoder would only report an unexpected end of input.
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
	if failure := explainDecodeError(data, m); failure != nil {
		failure.Cause = err
		return failure
	}
	return err
}

// decodeInto decodes data with unmarshal into v, which is a message or a requestTarget. It stores
// an error of decoding in a requestTarget, and returns one for a message.
func decodeInto(data []byte, v any, unmarshal func([]byte, proto.Message) error) error {
	if target, ok := v.(requestTarget); ok {
		if err := unmarshal(data, target.Message()); err != nil {
			target.SetDecodeError(err)
		}
		return nil
	}
	m, err := AsMessage(v)
	if err != nil {
		return err
	}
	return unmarshal(data, m)
}

// AsMessage returns v as a message, or an error if it is not one.
func AsMessage(v any) (proto.Message, error) {
	if m, ok := v.(proto.Message); ok {
		return m, nil
	}
	return nil, fmt.Errorf("gateway: %T is no message", v)
}

// Codecs returns the option of a Connect handler for the two encodings, binary and JSON. Connect
// selects a codec by the content type including its charset, so JSON needs two.
func Codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(protoCodec{}),
		connect.WithCodec(JSONCodec{"json"}),
		connect.WithCodec(JSONCodec{"json; charset=utf-8"}),
	)
}
