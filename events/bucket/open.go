package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// ErrTarget is returned for what is neither a path nor the address of an S3 bucket.
var ErrTarget = errors.New("bucket: not a directory or s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION&insecure=true")

// Open returns the bucket at a target: the path of a directory, which is created, or
//
//	s3://bucket/prefix?endpoint=host:port&region=name&insecure=true
//
// of which the prefix and all parameters may be missing: the endpoint is then Amazon's. The S3 bucket must exist; its
// credentials are those of the environment (see [S3Config]) and never part of a target.
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
	if s, ok := b.(*s3); ok {
		err = s.checkExists(ctx)
	}
	return b, err
}

func parseTarget(target string) (S3Config, error) {
	u, err := url.Parse(target)
	if err != nil {
		return S3Config{}, ErrTarget // the text may have a secret
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
