// Package bucket stores named objects in a directory or in an S3 bucket. Objects are written as a
// whole and read in whole or in part. The archive of the log and the snapshots of stores are stored
// in buckets.
package bucket

import (
	"context"
	"errors"
	"io"
	"time"
)

// Errors of a [Bucket].
var (
	// ErrNotFound means that there is no object of that name.
	ErrNotFound = errors.New("bucket: no such object")
	// ErrName means that a name is not valid. A name has at most 512 bytes. It consists of parts
	// that are separated by "/". A part begins with a letter or digit and continues with the
	// characters A-Z, a-z, 0-9, ".", "_" and "-".
	ErrName = errors.New("bucket: not a name of an object")
)

// Bucket stores objects by name. Its methods are safe for concurrent use.
type Bucket interface {
	// Put writes an object and replaces an existing one of the same name. The object appears as a
	// whole or not at all, and is durable when Put returns. r must return exactly size bytes;
	// otherwise Put fails and the object is not written.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Get reads length bytes of an object from an offset on, or fewer if the object ends before
	// that. A negative length means up to the end. Get fails with [ErrNotFound] if there is no such
	// object. The caller must close the reader.
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// List returns the objects whose names begin with a prefix, in order of their names.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Delete removes an object durably. It returns nil if there is no such object.
	Delete(ctx context.Context, name string) error
	// String returns the location of the bucket, without secrets.
	String() string
}

// Cleaner is implemented by buckets in which an interrupted call of Put leaves a partial object
// behind. Partial objects are never listed.
type Cleaner interface {
	// Clean removes the partial objects that were last written to before a time. A call of Put that
	// is still writing one of them fails.
	Clean(before time.Time) error
}

// Object describes an object in a listing.
type Object struct {
	Name string
	// Size is in bytes.
	Size int64
	// Time is when the object was written, by the clock of the bucket.
	Time time.Time
}
