package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// DefaultEndpoint is the endpoint of Amazon S3.
const DefaultEndpoint = "s3.amazonaws.com"

// S3Config identifies an S3 bucket, or the part of one whose names begin with a prefix, and how to
// access it.
type S3Config struct {
	// Endpoint is host:port of the server; empty means [DefaultEndpoint].
	Endpoint string
	// Bucket is the name of the bucket, which must exist.
	Bucket string
	// Prefix and a slash are put before the names of all objects. Empty means that the names are
	// used as they are.
	Prefix string
	// Region is the region of the bucket. Empty means that the server is asked.
	Region string
	// Insecure selects HTTP instead of HTTPS.
	Insecure bool
	// AccessKey and SecretKey are the credentials; temporary ones also have a SessionToken. If
	// AccessKey is empty, the first of these sources that has credentials is used:
	// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN), MINIO_ROOT_USER and
	// MINIO_ROOT_PASSWORD, the file of AWS_SHARED_CREDENTIALS_FILE (else ~/.aws/credentials) with
	// the profile of AWS_PROFILE, and the role of the machine.
	AccessKey, SecretKey, SessionToken string
}

// s3 is a bucket on a server that implements the protocol of Amazon S3.
type s3 struct {
	core    minio.Core
	bucket  string
	prefix  string // ends with a slash, or is empty
	address string // the target of the bucket, as Open takes it
}

// NewS3 returns an S3 bucket. Unlike [Open] it does not contact the server, so it does not notice a
// missing bucket or wrong credentials.
func NewS3(cfg S3Config) (Bucket, error) {
	if cfg.Bucket == "" {
		return nil, fmt.Errorf("%w: there is no name of a bucket", ErrTarget)
	}
	s := &s3{bucket: cfg.Bucket}
	if prefix := strings.Trim(cfg.Prefix, "/"); prefix != "" {
		if err := checkName(prefix); err != nil {
			return nil, err
		}
		s.prefix = prefix + "/"
	}

	creds := credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, cfg.SessionToken)
	if cfg.AccessKey == "" {
		creds = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		})
	}

	endpoint := cfg.Endpoint
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	client, err := minio.New(endpoint, &minio.Options{
		Creds: creds, Secure: !cfg.Insecure, Region: cfg.Region,
		TrailingHeaders: true, // sends checksums of the uploaded bytes, which the server compares
	})
	if err != nil {
		return nil, fmt.Errorf("bucket: S3 at %s: %w", endpoint, err)
	}
	s.core = minio.Core{Client: client}
	s.address = s.formatTarget(cfg)
	return s, nil
}

// formatTarget returns the address of the bucket, which [Open] accepts.
func (s *s3) formatTarget(cfg S3Config) string {
	q := url.Values{}
	for key, value := range map[string]string{"endpoint": cfg.Endpoint, "region": cfg.Region} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if cfg.Insecure {
		q.Set("insecure", "true")
	}
	u := url.URL{Scheme: "s3", Host: s.bucket, Path: "/" + strings.TrimSuffix(s.prefix, "/"), RawQuery: q.Encode()}
	return u.String()
}

// String returns the address of the bucket, which [Open] accepts.
func (s *s3) String() string { return s.address }

// checkExists returns an error unless the bucket exists and may be accessed with these credentials.
func (s *s3) checkExists(ctx context.Context) error {
	ok, err := s.core.BucketExists(ctx, s.bucket)
	if err != nil {
		return fmt.Errorf("bucket: %s: %w", s, err)
	}
	if !ok {
		return fmt.Errorf("bucket: %s: there is no S3 bucket %q: create it first", s, s.bucket)
	}
	return nil
}

// Put implements [Bucket].
func (s *s3) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	body := newExactReader(r, size)
	if size == 0 {
		// The client reads nothing if the size is 0, so it would not notice that there is more.
		if _, err := body.Read(nil); !errors.Is(err, io.EOF) {
			return fmt.Errorf("bucket: write %s in %s: %w", name, s, err)
		}
	}
	_, err := s.core.Client.PutObject(ctx, s.bucket, s.prefix+name, body, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", AutoChecksum: minio.ChecksumCRC32C,
	})
	if err != nil {
		return fmt.Errorf("bucket: write %s in %s: %w", name, s, err)
	}
	return nil
}

// Get implements [Bucket].
func (s *s3) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if length == 0 {
		return s.openEmpty(ctx, name) // HTTP has no range of no bytes
	}

	var opts minio.GetObjectOptions
	var err error
	switch {
	case length > 0:
		err = opts.SetRange(offset, offset+length-1)
	case offset > 0:
		err = opts.SetRange(offset, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("bucket: read %s in %s: %w", name, s, err)
	}

	r, _, _, err := s.core.GetObject(ctx, s.bucket, s.prefix+name, opts)
	if err != nil && minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		// The offset is at or after the end of the object, which a Bucket answers with no bytes.
		return s.openEmpty(ctx, name)
	}
	if err != nil {
		return nil, s.readError(name, err)
	}
	return &s3Body{ReadCloser: r, object: fmt.Sprintf("%s in %s", name, s)}, nil
}

// s3Body is the content of an object. If the connection ends before the content, net/http returns
// io.ErrUnexpectedEOF, which callers would take for an object that is too short, and so for damage.
// s3Body returns another error, after which they try again. The content of an object that is too
// short ends with io.EOF, because the server states its length.
type s3Body struct {
	io.ReadCloser
	object string
}

// Read implements [io.Reader].
func (b *s3Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("bucket: read %s: the connection has ended early", b.object)
	}
	return n, err
}

// openEmpty returns a reader of no bytes if the object exists, and otherwise [ErrNotFound].
func (s *s3) openEmpty(ctx context.Context, name string) (io.ReadCloser, error) {
	if _, err := s.core.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{}); err != nil {
		return nil, s.readError(name, err)
	}
	return http.NoBody, nil
}

// readError wraps an error of reading an object. It returns [ErrNotFound] if there is no such
// object.
func (s *s3) readError(name string, err error) error {
	if code := minio.ToErrorResponse(err).Code; code == minio.NoSuchKey {
		return fmt.Errorf("%w: %s in %s", ErrNotFound, name, s)
	}
	// The answer of the server has ended early. Like s3Body, do not return an error that callers
	// would take for an object that is too short.
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("bucket: read %s in %s: the connection has ended early", name, s)
	}
	return fmt.Errorf("bucket: read %s in %s: %w", name, s, err)
}

// List implements [Bucket].
func (s *s3) List(ctx context.Context, prefix string) ([]Object, error) {
	// The client lists in a goroutine, which the end of ctx stops when an error ends the loop
	// early.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var objects []Object
	for o := range s.core.Client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, fmt.Errorf("bucket: list %s: %w", s, o.Err)
		}
		name := strings.TrimPrefix(o.Key, s.prefix)
		if checkName(name) == nil {
			objects = append(objects, Object{Name: name, Size: o.Size, Time: o.LastModified})
		}
	}
	return objects, ctx.Err()
}

// Delete implements [Bucket].
func (s *s3) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := s.core.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return fmt.Errorf("bucket: delete %s in %s: %w", name, s, err)
	}
	return nil
}
