package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// ErrTarget means that a target is neither the path of a directory nor the address of an S3 bucket.
var ErrTarget = errors.New("bucket: not a directory or s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION&insecure=true")

// Open returns the bucket at a target. A target is either the path of a directory, which Open
// creates if it does not exist, or
//
//	s3://bucket/prefix?endpoint=host:port&region=name&insecure=true
//
// The prefix and all parameters are optional; the default endpoint is [DefaultEndpoint]. The S3
// bucket must exist. Its credentials come from the environment (see [S3Config]) and are never part
// of a target.
func Open(ctx context.Context, target string) (Bucket, error) {
	if target == "" {
		return nil, ErrTarget
	}
	if !strings.Contains(target, "://") {
		return NewDir(target)
	}

	cfg, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	b, err := NewS3(cfg)
	if err != nil {
		return nil, err
	}
	// A mistake in the address or the credentials is reported now, and not by the first write.
	if s, ok := b.(*s3); ok {
		err = s.checkExists(ctx)
	}
	return b, err
}

// parseTarget parses the address of an S3 bucket. It fails with [ErrTarget].
func parseTarget(target string) (S3Config, error) {
	u, err := url.Parse(target)
	if err != nil {
		return S3Config{}, ErrTarget // without the target, which may contain a secret
	}
	if u.Scheme != "s3" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return S3Config{}, fmt.Errorf("%w: %s", ErrTarget, u.Redacted())
	}

	cfg := S3Config{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	for key, values := range u.Query() {
		value := values[len(values)-1]
		switch key {
		case "endpoint":
			cfg.Endpoint = value
		case "region":
			cfg.Region = value
		case "insecure":
			if cfg.Insecure, err = strconv.ParseBool(value); err != nil {
				return S3Config{}, fmt.Errorf("%w: insecure is %q", ErrTarget, value)
			}
		default:
			return S3Config{}, fmt.Errorf("%w: there is no parameter %q", ErrTarget, key)
		}
	}
	return cfg, nil
}
