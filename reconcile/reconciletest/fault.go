package reconciletest

import (
	"context"
	"net/http"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Fault is what happens to a request. It calls serve to let the server answer, or does not, and returns what the client
// gets to see. An error is one of the connection. See [Link.Inject].
type Fault func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error)

// Reset breaks the connection before the server has seen the request.
func Reset(context.Context, func() (*http.Response, error)) (*http.Response, error) {
	return nil, errReset
}

// LoseAnswer breaks the connection after the server has done what was asked for: the client cannot know whether it has.
func LoseAnswer(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
	resp, err := serve()
	if err == nil {
		resp.Body.Close()
	}
	return nil, errReset
}

// Refuse answers with an error, such as one that package apierrors makes; the server does not see the request.
func Refuse(err error) Fault {
	return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
		return encodedStatus(statusOf(err)), nil
	}
}

// AnswerWith lets the server do what the request asks for, and answers with an error all the same, as a server does
// when its own timeout has passed.
func AnswerWith(err error) Fault {
	return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		if resp, err := serve(); err == nil {
			resp.Body.Close()
		}
		return encodedStatus(statusOf(err)), nil
	}
}

// Delay holds a request back for a time before the server sees it, and the answer for a time after. If the client gives
// up before, the server does not see the request.
func Delay(before, after time.Duration) Fault {
	return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		if !lifecycle.Sleep(ctx, before) {
			return nil, ctx.Err()
		}
		resp, err := serve()
		if err != nil {
			return nil, err
		}
		if !lifecycle.Sleep(ctx, after) {
			resp.Body.Close()
			return nil, ctx.Err()
		}
		return resp, nil
	}
}

// Do calls fn when the server has done what the request asks for, and before the client gets the answer: the moment to
// kill a process, or to write as another user.
func Do(fn func()) Fault {
	return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		resp, err := serve()
		fn()
		return resp, err
	}
}
