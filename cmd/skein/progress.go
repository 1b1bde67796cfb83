package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

// logEvery is how often progress is told where there is no terminal to draw on.
const logEvery = 5 * time.Second

// progress shows how far long work is: a bar on a terminal, now and then a line elsewhere.
type progress struct {
	w    io.Writer
	what string
	bar  *progressbar.ProgressBar // nil: no terminal

	mu    sync.Mutex
	began time.Time
	told  time.Time
	// first are the events that an earlier run had sent; they do not count for the rate.
	first uint64
	begun bool
	rate  forecast
	// retrying notes that trouble was told, so that it is told once.
	retrying bool
}

func newProgress(w io.Writer, what string) *progress {
	p := &progress{w: w, what: what, began: time.Now(), told: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(1,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// imported shows the progress of an import: of the file by its bytes, for how many rows it has is not known.
func (p *progress) imported(at importer.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		p.begun, p.first = true, at.Events
	}
	if at.Retrying != nil {
		if !p.retrying {
			p.line("%s: trying again: %v", p.what, at.Retrying)
		}
		p.retrying = true
		return
	}
	p.retrying = false
	rate := float64(at.Events-p.first) / max(time.Since(p.began).Seconds(), 0.001)
	text := fmt.Sprintf("%s: row %d, %.0f events/s%s%s", p.what, at.Row, rate, rejectedText(at.Rejected), slowedText(at.Slowed))
	p.show(at.Read, at.Size, text)
}

func rejectedText(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d rejected", n)
}

// slowedText says for which projection an import waits.
func slowedText(by importer.Lag) string {
	if by.Projection == "" {
		return ""
	}
	return fmt.Sprintf(", waiting for %s, %.1fs behind", by.Projection, by.Behind.Seconds())
}

// compared shows the progress of a comparison.
func (p *progress) compared(done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show(int64(done), int64(total), fmt.Sprintf("%s: %d of %d users and boards", p.what, done, total))
}

// operated shows the progress of an operation, with the rate and the time left that the service tells.
func (p *progress) operated(op *skeinv1.Operation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.what + ": " + operationProgress(op)
	if p.bar != nil {
		p.draw(int64(op.GetDone()), int64(op.GetTotal()), text)
		return
	}
	if time.Since(p.told) >= logEvery {
		p.told = time.Now()
		fmt.Fprintln(p.w, text)
	}
}

// say tells something between two states of the bar.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s: %s", p.what, fmt.Sprintf(format, args...))
}

// note tells something that stands by itself between two states of the bar.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s", text)
}

// show shows how much is done, and the time left.
func (p *progress) show(done, total int64, text string) {
	if left, ok := p.rate.left(time.Now(), done, total); ok {
		text += ", about " + left.Round(time.Second).String() + " left"
	}
	p.draw(done, total, text)
}

// draw shows how much is done.
func (p *progress) draw(done, total int64, text string) {
	if p.bar != nil {
		p.bar.ChangeMax64(max(total, 1))
		p.bar.Describe(text)
		_ = p.bar.Set64(min(done, total)) // a bar that cannot be drawn stops nothing
		return
	}
	if time.Since(p.told) < logEvery {
		return
	}
	p.told = time.Now()
	fmt.Fprintf(p.w, "%s, %.0f %%\n", text, 100*float64(min(done, total))/float64(max(total, 1)))
}

// line tells something between two states of the bar.
func (p *progress) line(format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// clear takes the bar away so that something else can be printed.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// end takes the bar away for good.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}
