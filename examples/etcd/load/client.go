package load

import (
	"context"
	"errors"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// client has a connection to one member.
type client struct {
	load *Load
	turn int              // which member is next
	etcd *clientv3.Client // nil: there is no connection
}

var errNoEndpoints = errors.New("no member is known")

// repeat makes requests until ctx ends. After one that has failed it goes to the next member.
func (c *client) repeat(ctx context.Context, request func(context.Context) error) {
	defer c.leave()
	for ctx.Err() == nil {
		err := c.connect()
		if err == nil {
			try, cancel := context.WithTimeout(ctx, patience)
			err = request(try)
			cancel()
		}
		if err != nil {
			c.leave()
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.load.o.Pause):
		}
	}
}

func (c *client) connect() (err error) {
	if c.etcd != nil {
		return nil
	}
	all := c.load.o.Endpoints()
	if len(all) == 0 {
		return errNoEndpoints
	}
	c.turn++
	c.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{all[c.turn%len(all)]}, Logger: zap.NewNop()})
	return err
}

func (c *client) leave() {
	if c.etcd != nil {
		c.etcd.Close()
		c.etcd = nil
	}
}

// writer returns a function that writes the next number. If the last write got no answer, it reads first what the key
// has: the write may have been applied.
func (c *client) writer(r *register) func(context.Context) error {
	var number, revision int64
	known := false
	return func(ctx context.Context) error {
		if !known {
			value, found, err := c.read(ctx, r)
			if err != nil {
				return err
			}
			known, revision, number = true, found, max(number, value)
		}
		number++
		known = false
		answer, err := c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(r.key), "=", revision)).
			Then(clientv3.OpPut(r.key, strconv.FormatInt(number, 10))).Commit()
		if ctx.Err() == context.Canceled {
			return nil // the load ends
		}
		if err == nil && answer.Succeeded {
			r.raise(number)
			known, revision = true, answer.Header.Revision
		}
		if err != nil || answer.Succeeded { // else an earlier write that got no answer has been applied
			c.load.count(true, err, "")
		}
		return err
	}
}

// reader returns a function that reads one key after the other.
func (c *client) reader(n int) func(context.Context) error {
	return func(ctx context.Context) error {
		n++
		_, _, err := c.read(ctx, c.load.registers[n%len(c.load.registers)])
		return err
	}
}

// read reads a key as a quorum has it, and returns its number and its revision.
func (c *client) read(ctx context.Context, r *register) (value, revision int64, err error) {
	known := r.atLeast()
	answer, err := c.etcd.Get(ctx, r.key)
	if ctx.Err() == context.Canceled {
		return 0, 0, ctx.Err() // the load ends
	}
	wrong := ""
	if err == nil {
		value, revision, wrong = r.judge(known, answer.Kvs)
	}
	c.load.count(false, err, wrong)
	return value, revision, err
}
