package command

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay"
)

// lineInterval is the least time between two lines of progress if the output is not a terminal, so
// that the log of a long task stays short.
const lineInterval = 5 * time.Second

// Progress shows the progress of a long task: on a terminal as a bar, otherwise as a line from time
// to time. Its methods may be called concurrently.
type Progress struct {
	w    io.Writer
	name string                   // of the task
	bar  *progressbar.ProgressBar // nil means that w is not a terminal

	mu       sync.Mutex
	lastLine time.Time // when the last line of progress was printed
	forecast forecast
	// isRetrying is set after an error was printed, so that the errors of further attempts are not
	// printed.
	isRetrying bool
}

// NewProgress returns the progress of a task with this name, of which nothing is shown yet.
func NewProgress(w io.Writer, name string) *Progress {
	p := &Progress{w: w, name: name, lastLine: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(1,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(name), progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// Say prints a line that begins with the name of the task.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printLine("%s: %s", p.name, fmt.Sprintf(format, args...))
}

// Note prints a line without the name of the task.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printLine("%s", text)
}

// ShowWithEstimate shows the progress with an estimate of the time left.
func (p *Progress) ShowWithEstimate(done, total int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left, ok := p.forecast.timeLeft(time.Now(), done, total); ok {
		text += ", about " + left.Round(time.Second).String() + " left"
	}
	if p.bar == nil {
		text = fmt.Sprintf("%s, %.0f %%", text, 100*float64(min(done, total))/float64(max(total, 1)))
	}
	p.showLocked(done, total, text)
}

// Show shows the progress, without an estimate of the time left.
func (p *Progress) Show(done, total int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.showLocked(done, total, text)
}

// showLocked draws the bar, or prints a line if the last one is old enough. p.mu is held.
func (p *Progress) showLocked(done, total int64, text string) {
	text = p.name + ": " + text
	switch {
	case p.bar != nil:
		p.bar.ChangeMax64(max(total, 1))
		p.bar.Describe(text)
		_ = p.bar.Set64(min(done, total)) // the task continues even if its bar cannot be drawn
	case time.Since(p.lastLine) >= lineInterval:
		p.lastLine = time.Now()
		fmt.Fprintln(p.w, text)
	}
}

// RecordAttempt records the outcome of an attempt, and reports whether the task is being retried.
// It prints the error of the first attempt that fails, but not those of the attempts that follow
// until one succeeds.
func (p *Progress) RecordAttempt(err error) (isRetrying bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && !p.isRetrying {
		p.printLine("%s: retrying: %v", p.name, err)
	}
	p.isRetrying = err != nil
	return p.isRetrying
}

// printLine removes the bar, which the next call of a Show method draws again, and prints a line.
func (p *Progress) printLine(format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Clear removes the bar until the next call of a Show method, so that other output can be printed.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// End removes the bar for good.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}

// ShowProgress shows the progress of a task that counts bytes, until stop is called. stop may be
// called again.
func ShowProgress(w io.Writer, name string, progress *replay.Progress) (stop func()) {
	return ShowEvery(w, name, func(p *Progress) {
		now := progress.Now()
		if now.Total == 0 {
			return // the total is not known yet
		}
		text := fmt.Sprintf("%s of %s %s", events.FormatSize(now.Done), events.FormatSize(now.Total), now.Unit)
		p.ShowWithEstimate(int64(now.Done), int64(now.Total), text)
	})
}

// ShowPhases shows the progress of a task with phases, each of which counts in its own unit, until
// stop is called. stop may be called again.
func ShowPhases(w io.Writer, name string, progress *replay.Progress) (stop func()) {
	return ShowEvery(w, name, func(p *Progress) {
		now := progress.Now()
		if now.Total == 0 {
			return // the total is not known yet
		}
		text := fmt.Sprintf("%s %d of %d %s", now.Phase, now.Done, now.Total, now.Unit)
		p.ShowWithEstimate(int64(now.Done), int64(now.Total), text)
	})
}

// ShowEvery calls show periodically until stop is called. stop returns when show is not called any
// more; it may be called again.
func ShowEvery(w io.Writer, name string, show func(p *Progress)) (stop func()) {
	p := NewProgress(w, name)
	quit := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-quit:
				p.End()
				return
			}
			show(p)
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
}
