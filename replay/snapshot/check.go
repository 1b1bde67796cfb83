package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/replay"
)

// CheckReport is the result of [Check].
type CheckReport struct {
	// Files and Bytes are the number and the total size of the files that were read.
	Files int
	Bytes int64
	// Damaged are the names of the objects that do not have the content that was written.
	Damaged []string
	// Removed says whether the damaged files were removed.
	Removed bool
	// Broken are the snapshots, as SNAPSHOT/PROJECTION, that cannot be restored because the
	// manifest or a file is damaged or missing.
	Broken []string
}

// String describes the result to people.
func (c CheckReport) String() string {
	text := fmt.Sprintf("read %d files, %d bytes: %d damaged objects, %d snapshots cannot be restored", c.Files, c.Bytes,
		len(c.Damaged), len(c.Broken))
	if c.Removed {
		text += "; the damaged files were removed; the next snapshot uploads again those that the stores still have"
	}
	return text
}

// Check reads all files in a bucket and compares them with their checksums. A damaged file breaks
// every snapshot that contains it, even later ones, because a file that is in the bucket is not
// uploaded again. If remove is true, Check removes files that were damaged in two readings. The
// next snapshot of a store that has such a file then uploads it again. Manifests are never removed.
func Check(ctx context.Context, b bucket.Bucket, remove bool, pace replay.Pace, p *replay.Progress) (c CheckReport, err error) {
	run := func(ctx context.Context) error {
		c, err = checkClaimed(ctx, b, remove, pace, p)
		return err
	}
	if remove {
		err = withClaim(ctx, b, "check", run)
		return c, err
	}
	return c, run(ctx)
}

// checkClaimed does the work of Check. If remove is true, the caller holds the claim.
func checkClaimed(ctx context.Context, b bucket.Bucket, remove bool, pace replay.Pace, p *replay.Progress) (c CheckReport, err error) {
	list, err := List(ctx, b)
	if err != nil {
		return c, err
	}
	files, err := b.List(ctx, filePrefix)
	if err != nil {
		return c, err
	}
	var total int64
	for _, o := range files {
		total += o.Size
	}
	p.StartPhase(replay.Checking, "bytes", uint64(total))

	sizes := make(map[string]int64, len(files)) // of the undamaged files
	for _, o := range files {
		n, err := checkFile(ctx, b, o.Name, pace, p)
		if errors.Is(err, ErrDamaged) {
			// The bytes may have been damaged on the way. Read them again, without counting them
			// twice in the progress.
			n, err = checkFile(ctx, b, o.Name, pace, nil)
		}
		c.Files++
		c.Bytes += n
		switch {
		case errors.Is(err, ErrDamaged):
			c.Damaged = append(c.Damaged, o.Name)
		case errors.Is(err, bucket.ErrNotFound): // it was pruned in the meantime
		case err != nil:
			return c, err
		default:
			sizes[o.Name] = n
		}
	}

	if remove {
		for _, name := range c.Damaged {
			if err := b.Delete(ctx, name); err != nil {
				return c, err
			}
		}
		c.Removed = len(c.Damaged) > 0
	}

	for _, l := range list {
		isBroken := l.Err != nil || slices.ContainsFunc(l.Manifest.Files, func(f File) bool {
			size, ok := sizes[f.object()]
			return !ok || size != f.Size
		})
		if !isBroken {
			continue
		}

		// Without a claim, another process may have removed the snapshot and its files since they
		// were listed. Such a snapshot is gone, and not broken.
		manifest := manifestName(l.Snapshot, l.Projection)
		_, err := readManifest(ctx, b, manifest)
		if errors.Is(err, ErrNone) {
			continue
		}
		if l.Err != nil {
			c.Damaged = append(c.Damaged, manifest)
		}
		c.Broken = append(c.Broken, l.Snapshot+"/"+l.Projection)
	}
	return c, nil
}

// checkFile reads a file and compares the hash of its content with its name. It returns how many
// bytes it has read.
func checkFile(ctx context.Context, b bucket.Bucket, object string, pace replay.Pace, p *replay.Progress) (n int64, err error) {
	r, err := b.Get(ctx, object, 0, -1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()

	h := sha256.New()
	n, err = io.Copy(h, &progressReader{&throttledReader{ctx: ctx, r: r, pace: pace}, p})
	if err != nil {
		return n, err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != strings.TrimPrefix(object, filePrefix) {
		return n, fmt.Errorf("%w: the object %s in %s has the checksum %s", ErrDamaged, object, b, sum)
	}
	return n, nil
}
