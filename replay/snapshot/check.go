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

// Checked is the result of [Check].
type Checked struct {
	Files int
	Bytes int64
	// Damaged are the names of objects whose content is not the one that was written. Removed reports whether the files among them were
	// removed.
	Damaged []string
	Removed bool
	// Broken are the snapshots, <snapshot>/<projection>, that cannot be restored, because a file or the manifest is damaged or missing.
	Broken []string
}

// String returns the result for people.
func (c Checked) String() string {
	text := fmt.Sprintf("read %d files, %d bytes: %d damaged objects, %d snapshots cannot be restored", c.Files, c.Bytes,
		len(c.Damaged), len(c.Broken))
	if c.Removed {
		text += "; the damaged files were removed: the next snapshot writes anew what the stores still have of them"
	}
	return text
}

// Check reads all files in a bucket and compares them with their checksums. A damaged file breaks every snapshot that shares it, later
// ones too, because a file that is there is not written again. With remove, Check removes a file that was damaged in two readings, so
// that the next snapshot of a store that has it writes it again. Manifests are never removed.
func Check(ctx context.Context, b bucket.Bucket, remove bool, pace replay.Pace, p *replay.Progress) (c Checked, err error) {
	look := func(ctx context.Context) error {
		c, err = check(ctx, b, remove, pace, p)
		return err
	}
	if remove {
		err = claimed(ctx, b, "check", look)
		return c, err
	}
	return c, look(ctx)
}

func check(ctx context.Context, b bucket.Bucket, remove bool, pace replay.Pace, p *replay.Progress) (c Checked, err error) {
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
	good := make(map[string]int64, len(files))
	for _, o := range files {
		n, err := sound(ctx, b, o.Name, pace, p)
		if errors.Is(err, ErrDamaged) {
			n, err = sound(ctx, b, o.Name, pace, nil) // the first reading may have been damaged on the way
		}
		c.Files++
		c.Bytes += n
		switch {
		case errors.Is(err, ErrDamaged):
			c.Damaged = append(c.Damaged, o.Name)
		case errors.Is(err, bucket.ErrNotFound): // pruned meanwhile
		case err != nil:
			return c, err
		default:
			good[o.Name] = n
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
		if l.Err != nil {
			c.Damaged = append(c.Damaged, manifestName(l.Snapshot, l.Projection))
		}
		if l.Err != nil || slices.ContainsFunc(l.Manifest.Files, func(f File) bool {
			n, ok := good[f.object()]
			return !ok || n != f.Size
		}) {
			c.Broken = append(c.Broken, l.Snapshot+"/"+l.Projection)
		}
	}
	return c, nil
}

// sound reads a file and compares it with its checksum, which is its name. It returns the bytes that it has read.
func sound(ctx context.Context, b bucket.Bucket, object string, pace replay.Pace, p *replay.Progress) (n int64, err error) {
	r, err := b.Get(ctx, object, 0, -1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	h := sha256.New()
	if n, err = io.Copy(h, &counted{&paced{ctx: ctx, r: r, pace: pace}, p}); err != nil {
		return n, err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != strings.TrimPrefix(object, filePrefix) {
		return n, fmt.Errorf("%w: the object %s in %s has the checksum %s", ErrDamaged, object, b, sum)
	}
	return n, nil
}
