package reconcile_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// badNetwork is a transport on which what watches bring is late, watches fall silent and break, answers to writes come
// late, and some are lost after the server has done the write.
type badNetwork struct {
	calm        chan struct{} // is closed when all goes well from then on
	lost, broke atomic.Int64
}

func (n *badNetwork) isCalm() bool {
	select {
	case <-n.calm:
		return true
	default:
		return false
	}
}

func (n *badNetwork) over(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		switch {
		case err != nil || n.isCalm() || response.StatusCode/100 != 2:
		case request.Method != http.MethodGet:
			return n.answer(response)
		case request.URL.Query().Get("watch") != "":
			response.Body = n.watch(response.Body)
		}
		return response, err
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// answer is late, or lost in one of three ways.
func (n *badNetwork) answer(response *http.Response) (*http.Response, error) {
	if chance(0.3) {
		time.Sleep(upTo(60 * time.Millisecond))
	}
	if !chance(0.005) {
		return response, nil
	}
	n.lost.Add(1)
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	switch rand.IntN(3) {
	case 0:
		return nil, errors.New("the answer is lost")
	case 1:
		response.StatusCode, response.Status = http.StatusGatewayTimeout, "504 Gateway Timeout"
		response.Header = http.Header{}
		response.Body, response.ContentLength = http.NoBody, 0
	default:
		half := io.MultiReader(bytes.NewReader(body[:len(body)/2]), brokenBody{})
		response.Body = io.NopCloser(half)
	}
	return response, nil
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("the connection is broken") }

func chance(p float64) bool { return rand.Float64() < p }

func upTo(d time.Duration) time.Duration { return rand.N(d) + 1 }

// watch returns the body of a watch as it comes through: each piece late, some by seconds. After some seconds nothing
// comes for a while, and then the watch breaks.
func (n *badNetwork) watch(body io.ReadCloser) io.ReadCloser {
	w := &lateBody{network: n, body: body, pieces: make(chan latePiece, 100_000), closed: make(chan struct{})}
	w.silentFrom = time.Now().Add(time.Second + upTo(8*time.Second))
	w.breaksAt = w.silentFrom.Add(upTo(3 * time.Second))
	if chance(0.1) { // longer than the loop waits before it has the informer list anew
		w.breaksAt = w.breaksAt.Add(12 * time.Second)
	}
	w.running.Go(w.read)
	return w
}

// lateBody is the body of a watch. One goroutine reads it, and ends when Close has been called.
type lateBody struct {
	network              *badNetwork
	body                 io.ReadCloser
	pieces               chan latePiece
	silentFrom, breaksAt time.Time
	closed               chan struct{}
	once                 sync.Once
	running              sync.WaitGroup
	rest                 []byte // has arrived and not been read
}

type latePiece struct {
	data []byte
	at   time.Time // when it arrives
	err  error
}

func (w *lateBody) read() {
	var last time.Time
	for {
		buffer := make([]byte, 16<<10)
		k, err := w.body.Read(buffer)
		at := time.Now().Add(upTo(80 * time.Millisecond))
		if chance(0.004) {
			at = at.Add(upTo(3 * time.Second))
		}
		if at.Before(last) {
			at = last
		}
		last = at
		select {
		case w.pieces <- latePiece{buffer[:k], at, err}:
		case <-w.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (w *lateBody) Read(buffer []byte) (int, error) {
	if len(w.rest) > 0 {
		k := copy(buffer, w.rest)
		w.rest = w.rest[k:]
		return k, nil
	}
	var p latePiece
	select {
	case p = <-w.pieces:
	case <-w.until(w.breaksAt):
		return w.breakNow()
	case <-w.closed:
		return 0, io.ErrClosedPipe
	}
	if p.at.After(w.silentFrom) {
		p.at = w.breaksAt
	}
	select {
	case <-w.network.calm:
	case <-w.until(p.at):
		if !p.at.Before(w.breaksAt) {
			return w.breakNow()
		}
	case <-w.closed:
		return 0, io.ErrClosedPipe
	}
	if p.err != nil {
		return 0, p.err
	}
	w.rest = p.data
	return w.Read(buffer)
}

func (w *lateBody) until(at time.Time) <-chan time.Time { return time.After(time.Until(at)) }

func (w *lateBody) breakNow() (int, error) {
	w.network.broke.Add(1)
	return 0, errors.New("the watch is broken")
}

func (w *lateBody) Close() (err error) {
	w.once.Do(func() {
		close(w.closed)
		err = w.body.Close()
		w.running.Wait()
	})
	return err
}
