// Package bucket keeps named objects: what is written once and kept, in a directory or in an S3 bucket. The archive of the
// log and the snapshots of stores stand in one.
package bucket

import (
	"context"
	"errors"
	"io"
	"time"
)

// Errors of a bucket.
var (
	// ErrNotFound: there is no object of that name.
	ErrNotFound = errors.New("bucket: no such object")
	// ErrName: the name is none. A name has parts of the characters A-Z, a-z, 0-9, "." "_" and "-", a letter or digit first, with
	// "/" between them, and at most 512 bytes.
	ErrName = errors.New("bucket: not a name of an object")
)

// Bucket keeps objects by name. Its methods are safe for concurrent use.
type Bucket interface {
	// Put writes an object, in place of one of the same name. The object appears whole or not at all, and is durable on
	// return. size is in bytes; what r gives must be as much.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Get reads an object from an offset on, length bytes; a negative length: to the end. Without such an object:
	// [ErrNotFound].
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// List returns the objects whose names begin with a prefix, by name.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Delete removes an object, durably. It is no error if there is none.
	Delete(ctx context.Context, name string) error
	// String says where the bucket is, without secrets.
	String() string
}

// Cleaner is a bucket in which calls of Put that were interrupted leave something behind that is never listed.
type Cleaner interface {
	// Clean removes what was last written to before a time. A call of Put that continues with such a thing fails.
	Clean(before time.Time) error
}

// Object is what a listing tells of an object.
type Object struct {
	Name string
	// Size in bytes.
	Size int64
	// Time is when it was written, by the clock of the bucket.
	Time time.Time
}
