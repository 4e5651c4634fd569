package reconciletest

import (
	"context"
	"net/http"
	"time"
)

// Fault is what happens to a request: it calls serve to have it served, or does not, and decides what the client gets
// to see. See [Link.Inject].
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

// Refuse answers with an error, such as one that package apierrors makes, and does nothing.
func Refuse(err error) Fault {
	return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
		return encodedStatus(statusOf(err)), nil
	}
}

// AnswerWith does what was asked for and answers with an error all the same, as a server does whose own time has run
// out.
func AnswerWith(err error) Fault {
	return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		if resp, err := serve(); err == nil {
			resp.Body.Close()
		}
		return encodedStatus(statusOf(err)), nil
	}
}

// Delay holds a request back for a while before it is served, and its answer for a while after.
func Delay(before, after time.Duration) Fault {
	return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		if err := sleep(ctx, before); err != nil {
			return nil, err
		}
		resp, err := serve()
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, after); err != nil {
			resp.Body.Close()
			return nil, err
		}
		return resp, nil
	}
}

// Do calls a function once the request has been served, before its answer is on its way: the moment at which a process
// is killed, or somebody else interferes.
func Do(fn func()) Fault {
	return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		resp, err := serve()
		fn()
		return resp, err
	}
}
