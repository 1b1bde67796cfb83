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

// logEvery is the time between two lines of progress if the output is no terminal.
const logEvery = 5 * time.Second

// Progress shows the progress of a long task: as a bar on a terminal, as occasional lines elsewhere.
type Progress struct {
	w    io.Writer
	what string
	bar  *progressbar.ProgressBar // nil means there is no terminal

	mu   sync.Mutex
	told time.Time
	rate forecast
	// troubled reports whether the present error was printed, so that it is printed once.
	troubled bool
}

// NewProgress shows the progress of the work with this name.
func NewProgress(w io.Writer, what string) *Progress {
	p := &Progress{w: w, what: what, told: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(1,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// Say prints a line between two states of the bar.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s: %s", p.what, fmt.Sprintf(format, args...))
}

// Note prints a line of its own between two states of the bar, without the name of the work.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s", text)
}

// Show shows the progress, and an estimate of the time left.
func (p *Progress) Show(done, total int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left, ok := p.rate.left(time.Now(), done, total); ok {
		text += ", about " + left.Round(time.Second).String() + " left"
	}
	if p.bar == nil {
		text = fmt.Sprintf("%s, %.0f %%", text, 100*float64(min(done, total))/float64(max(total, 1)))
	}
	p.drawLocked(done, total, text)
}

// Draw shows the progress, without an estimate of the time left.
func (p *Progress) Draw(done, total int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawLocked(done, total, text)
}

func (p *Progress) drawLocked(done, total int64, text string) {
	text = p.what + ": " + text
	switch {
	case p.bar != nil:
		p.bar.ChangeMax64(max(total, 1))
		p.bar.Describe(text)
		_ = p.bar.Set64(min(done, total)) // a bar that cannot be drawn does not stop the work
	case time.Since(p.told) >= logEvery:
		p.told = time.Now()
		fmt.Fprintln(p.w, text)
	}
}

// Retrying prints an error when retries begin, and once more when they have ended.
func (p *Progress) Retrying(trouble error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if trouble != nil && !p.troubled {
		p.line("%s: trying again: %v", p.what, trouble)
	}
	p.troubled = trouble != nil
	return p.troubled
}

// line prints a line between two states of the bar.
func (p *Progress) line(format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Clear hides the bar, so that other output can be printed.
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

// ShowProgress shows the progress of work on bytes until stop is called. stop may be called again.
func ShowProgress(w io.Writer, what string, at *replay.Progress) (stop func()) {
	return ShowEvery(w, what, func(p *Progress) {
		if now := at.Now(); now.Total > 0 {
			p.Show(int64(now.Done), int64(now.Total), fmt.Sprintf("%s of %s %s", events.FormatSize(now.Done), events.FormatSize(now.Total), now.Unit))
		}
	})
}

// ShowPhases shows the progress of work with phases, each with a unit of its own, until stop is called. stop may be called again.
func ShowPhases(w io.Writer, what string, at *replay.Progress) (stop func()) {
	return ShowEvery(w, what, func(p *Progress) {
		if now := at.Now(); now.Total > 0 {
			p.Show(int64(now.Done), int64(now.Total), fmt.Sprintf("%s %d of %d %s", now.Phase, now.Done, now.Total, now.Unit))
		}
	})
}

// ShowEvery calls show periodically until stop is called. stop may be called again.
func ShowEvery(w io.Writer, what string, show func(p *Progress)) (stop func()) {
	p := NewProgress(w, what)
	quit, ended := make(chan struct{}), make(chan struct{})
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
