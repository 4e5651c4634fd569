package load

import (
	"context"
	"crypto/tls"
	"errors"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// client has a connection to one member.
type client struct {
	load   *Load
	number int              // of the client
	turn   int              // which member is next
	etcd   *clientv3.Client // nil: there is no connection
	config *tls.Config      // of the connection
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
	config := c.load.o.TLS()
	if c.etcd != nil && c.config == config {
		return nil
	}
	c.leave()
	all := c.load.o.Endpoints()
	if len(all) == 0 {
		return errNoEndpoints
	}
	c.turn, c.config = c.turn+1, config
	c.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{all[c.turn%len(all)]}, TLS: config,
		Logger: zap.NewNop()})
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
	keys := r.all()
	k := keys[len(keys)-1]
	var number, revision int64
	known, writes := false, 0
	return func(ctx context.Context) error {
		if writes == writesOfKey {
			k, number, revision, known, writes = r.next(), 0, 0, true, 0
		}
		if !known {
			value, found, err := c.read(ctx, k)
			if err != nil {
				return err
			}
			known, revision, number = true, found, max(number, value, k.atLeast())
		}
		number++
		known = false
		o := operation{client: c.number, call: c.now(), write: true, outcome: unknown, number: number,
			expected: revision}
		answer, err := c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(k.name), "=", revision)).
			Then(clientv3.OpPut(k.name, strconv.FormatInt(number, 10))).Commit()
		o.back = c.now()
		switch {
		case err == nil && answer.Succeeded:
			o.outcome, o.revision = applied, answer.Header.Revision
			k.raise(number)
			known, revision, writes = true, o.revision, writes+1
		case err == nil: // an earlier write that got no answer has been applied
			o.outcome = refused
		}
		k.record(o)
		if ctx.Err() == context.Canceled {
			return nil // the load ends
		}
		if o.outcome != refused {
			c.load.count(true, err, "")
		}
		return err
	}
}

// reader returns a function that reads one key after the other.
func (c *client) reader(n int) func(context.Context) error {
	return func(ctx context.Context) error {
		n++
		registers := c.load.registers
		_, _, err := c.read(ctx, registers[n%len(registers)].pick(n/len(registers)))
		return err
	}
}

// read reads a key as a quorum has it, and returns its number and its revision.
func (c *client) read(ctx context.Context, k *key) (number, revision int64, err error) {
	known := k.atLeast()
	o := operation{client: c.number, call: c.now()}
	answer, err := c.etcd.Get(ctx, k.name)
	o.back = c.now()
	if ctx.Err() == context.Canceled {
		return 0, 0, ctx.Err() // the load ends
	}
	wrong := ""
	if err == nil {
		o.number, o.revision, wrong = k.compare(known, answer.Kvs)
		k.record(o)
	}
	c.load.count(false, err, wrong)
	return o.number, o.revision, err
}

// now returns the time since the load began.
func (c *client) now() time.Duration { return time.Since(c.load.report.Began) }
