package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/workqueue"
)

// A worker takes keys until its context ends, and ends each claim with the outcome of its work.
func Example() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	q.Add("default/web")
	q.Add("default/db")
	q.Add("default/web") // is there already

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		claim, err := q.Take(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("working on", claim.Key())
		claim.Done()
		if q.Len() == 0 {
			cancel()
		}
	}
	// Output:
	// working on default/web
	// working on default/db
	// context canceled
}

// The outcome of a run says whether and when the key comes back.
func ExampleClaim() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	reconcile := func(key string) error {
		if q.NumRequeues(key) < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	q.Add("default/web")
	for {
		claim, err := q.Take(context.Background())
		if err != nil {
			break
		}
		if err := reconcile(claim.Key()); err != nil {
			fmt.Println(err, "- again in", claim.Retry())
			continue
		}
		fmt.Println("fine")
		claim.DoneAfter(10 * time.Minute) // have a look again
		q.ShutDown()
	}
	// Output:
	// not yet - again in 5ms
	// not yet - again in 10ms
	// not yet - again in 20ms
	// fine
}

// A claim is ended in every case: a panic is a failure, too, and delays the key as one.
func ExampleClaim_Retry() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	work := func(claim workqueue.Claim[string], reconcile func(key string) error) {
		failed := true
		defer func() {
			if failed {
				claim.Retry() // not AddRateLimited and Done, which would forget the failure
			} else {
				claim.Done()
			}
		}()
		failed = reconcile(claim.Key()) != nil
	}
	for _, result := range []error{errors.New("not yet"), errors.New("not yet"), nil} {
		q.Add("default/web")
		claim, err := q.Take(context.Background())
		if err != nil {
			return
		}
		work(claim, func(string) error { return result })
		fmt.Println("failures:", q.NumRequeues("default/web"))
	}
	// Output:
	// failures: 1
	// failures: 2
	// failures: 0
}

// Code that was written for client-go's queue needs no change.
func ExampleQueue_Get() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	q.Add("default/web")
	q.ShutDown()
	for {
		key, shutdown := q.Get()
		if shutdown {
			return
		}
		fmt.Println(key)
		q.Forget(key)
		q.Done(key)
	}
	// Output: default/web
}

// To put a key off that is delayed already, cancel its delay first: of two delays the shorter one counts.
func ExampleQueue_Cancel() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	q.AddAfter("default/web", time.Minute)
	fmt.Println(q.Cancel("default/web"), q.Cancel("default/web"))
	q.AddAfter("default/web", time.Hour)
	// Output: true false
}

// Keys that a restart brings can wait for those that somebody changed just now.
func ExampleQueue_AddWith() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	q.AddWith("default/old", workqueue.AddOptions{Priority: -10})
	q.AddWith("default/older", workqueue.AddOptions{Priority: -10})
	q.Add("default/changed")
	for q.Len() > 0 {
		key, _ := q.Get()
		fmt.Println(key)
		q.Done(key)
	}
	// Output:
	// default/changed
	// default/old
	// default/older
}

// With groups the namespaces are served in turn, however many keys one of them has.
func ExampleOptions_group() {
	q, err := workqueue.New(workqueue.Options[string]{
		Group: func(key string) string {
			namespace, _, _ := strings.Cut(key, "/")
			return namespace
		},
	})
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"big/1", "big/2", "big/3", "big/4", "small/1"} {
		q.Add(key)
	}
	for q.Len() > 0 {
		key, _ := q.Get()
		fmt.Println(key)
		q.Done(key)
	}
	// Output:
	// big/1
	// small/1
	// big/2
	// big/3
	// big/4
}

// Drain lets the workers finish what is queued, and says what they could not.
func ExampleQueue_Drain() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	q.Add("default/web")
	q.AddAfter("default/later", time.Hour)
	go func() {
		for claim, err := q.Take(context.Background()); err == nil; claim, err = q.Take(context.Background()) {
			claim.Done()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println(q.Drain(ctx))
	// Output: [default/later] <nil>
}

// Why has this key not been worked on?
func ExampleQueue_Snapshot() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	q.Add("default/web")
	q.Take(context.Background())
	q.Add("default/web")
	for _, item := range q.Snapshot() {
		fmt.Println(item.Key, item.State, "and again after that:", item.Again)
	}
	// Output: default/web active and again after that: true
}

// The rate limiters say how long a key that failed has to wait.
func ExampleRateLimiter() {
	limiter := workqueue.MaxOf(
		workqueue.Exponential[string](5*time.Millisecond, time.Second, 0),
		workqueue.Exponential[string](20*time.Millisecond, 20*time.Millisecond, 0), // at least
	)
	for range 6 {
		fmt.Print(limiter.When("default/web"), " ")
	}
	limiter.Forget("default/web")
	fmt.Println(limiter.When("default/web"))
	// Output: 20ms 20ms 20ms 40ms 80ms 160ms 20ms
}
