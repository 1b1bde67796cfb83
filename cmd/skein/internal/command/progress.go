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

// logEvery is how often progress is told where there is no terminal to draw on.
const logEvery = 5 * time.Second

// Progress shows how far long work is: a bar on a terminal, now and then a line elsewhere.
type Progress struct {
	w    io.Writer
	what string
	bar  *progressbar.ProgressBar // nil: no terminal

	mu   sync.Mutex
	told time.Time
	rate forecast
	// troubled notes that trouble was told, so that it is told once.
	troubled bool
}

// NewProgress shows the progress of what is called so.
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

// Say tells something between two states of the bar.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s: %s", p.what, fmt.Sprintf(format, args...))
}

// Note tells something that stands by itself between two states of the bar.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s", text)
}

// Show shows how much is done, and the time left.
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

// Draw shows how much is done.
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
		_ = p.bar.Set64(min(done, total)) // a bar that cannot be drawn stops nothing
	case time.Since(p.told) >= logEvery:
		p.told = time.Now()
		fmt.Fprintln(p.w, text)
	}
}

// Retrying reports whether there is trouble, which is told once until it is over.
func (p *Progress) Retrying(trouble error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if trouble != nil && !p.troubled {
		p.line("%s: trying again: %v", p.what, trouble)
	}
	p.troubled = trouble != nil
	return p.troubled
}

// line tells something between two states of the bar.
func (p *Progress) line(format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Clear takes the bar away so that something else can be printed.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// End takes the bar away for good.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}

// ShowProgress shows how far work on bytes is until the returned function is called, which may be called again.
func ShowProgress(w io.Writer, what string, at *replay.Progress) (stop func()) {
	return ShowEvery(w, what, func(p *Progress) {
		if unit, done, total := at.Now(); total > 0 {
			p.Show(int64(done), int64(total), fmt.Sprintf("%s of %s %s", events.SizeText(done), events.SizeText(total), unit))
		}
	})
}

// ShowEvery shows again and again how far long work is until the returned function is called, which may be called again.
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
