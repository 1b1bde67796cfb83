package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/atomicfile"
)

// Reject is a rejected record.
type Reject struct {
	// Record is its number, from 1, without comments and header.
	Record uint64
	// Reason says why it was rejected, for people.
	Reason string
	// Line is the line of the record, or the beginning of a very long one.
	Line string
}

// rejectsHeader is the first line of the file of rejects. The original line is the last column, because it may have tabs.
const rejectsHeader = "row\treason\tline\n"

func (r *Reject) append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, r.Record, 10)
	dst = append(append(dst, '\t'), events.EscapeControls(strings.Join(strings.Fields(r.Reason), " "))...)
	dst = append(dst, '\t')
	// Control characters are escaped, but for the tabs that may delimit fields: a record may span lines, and what others wrote must not reach
	// a terminal as it is.
	for i, field := range strings.Split(r.Line[:min(len(r.Line), keptLine)], "\t") {
		if i > 0 {
			dst = append(dst, '\t')
		}
		dst = append(dst, events.EscapeControls(field)...)
	}
	return append(dst, '\n')
}

// rejects is the file of rejects. It is created for the first reject.
type rejects struct {
	path string
	file *os.File
}

// openRejects opens the rejects of an import that was interrupted after record done. It drops the rejects of later records, since these
// records are read again. A new import, with done 0, drops all rejects.
func openRejects(path string, done uint64) (*rejects, error) {
	r := &rejects{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(data, []byte(rejectsHeader)) {
		return nil, fmt.Errorf("%s is there and has no rejects: give --rejects", path)
	}
	kept := []byte(rejectsHeader)
	lines := bufio.NewScanner(bytes.NewReader(data[len(kept):]))
	lines.Buffer(nil, 16*keptLine) // an escaped line has up to four times as many bytes
	for lines.Scan() {
		number, _, _ := strings.Cut(lines.Text(), "\t")
		if n, err := strconv.ParseUint(number, 10, 64); err != nil || n > done {
			break
		}
		kept = append(append(kept, lines.Bytes()...), '\n')
	}
	if len(kept) == len(rejectsHeader) {
		return r, os.Remove(path)
	}
	return r, atomicfile.Write(path, kept)
}

// write appends rejects.
func (r *rejects) write(list []Reject) error {
	if len(list) == 0 {
		return nil
	}
	var data []byte
	if r.file == nil {
		f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		r.file = f
		if info, err := f.Stat(); err == nil && info.Size() == 0 {
			data = append(data, rejectsHeader...)
		}
	}
	for i := range list {
		data = list[i].append(data)
	}
	_, err := r.file.Write(data)
	return err
}

// sync makes the rejects durable. It must be called before the state says that their records are done.
func (r *rejects) sync() error {
	if r.file == nil {
		return nil
	}
	return r.file.Sync()
}

func (r *rejects) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
