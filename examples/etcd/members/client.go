package members

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/thermostat-go/thermostat/examples/etcd/plan"
)

// Client is etcd's own client. Each call has a connection of its own: calls are few, and a member that has moved is not
// looked for at its old address.
type Client struct {
	TLS *tls.Config // nil: none
}

// Ask implements Etcd.
func (client Client) Ask(ctx context.Context, url string) (a Answer, err error) {
	var shown atomic.Pointer[x509.Certificate]
	if client.TLS != nil {
		client.TLS = client.TLS.Clone()
		client.TLS.VerifyConnection = func(s tls.ConnectionState) error { // after the member was found trustworthy
			shown.Store(s.PeerCertificates[0])
			return nil
		}
	}
	err = client.with(ctx, []string{url}, func(c *clientv3.Client) error {
		s, err := c.Status(ctx, url)
		if err != nil {
			return err
		}
		a = Answer{Cluster: s.Header.ClusterId, ID: s.Header.MemberId, Leader: s.Leader, Learner: s.IsLearner,
			DBSize: s.DbSize,
			InUse:  s.DbSizeInUse, Revision: s.Header.Revision, Index: s.RaftIndex, Errors: s.Errors,
			Shown: shown.Load()}
		if a.Version, err = plan.ParseVersion(s.Version); err != nil {
			return err
		}
		a.StorageVersion, _ = plan.ParseVersion(s.StorageVersion) // etcd 3.5 has none
		if s.DowngradeInfo != nil && s.DowngradeInfo.Enabled {
			if a.DowngradeTo, err = plan.ParseVersion(s.DowngradeInfo.TargetVersion); err != nil {
				return err
			}
		}
		if a.Leader == 0 || a.Leader == a.ID {
			a.List, err = list(ctx, c, clientv3.WithSerializable())
		}
		return err
	})
	return a, err
}

// List implements Etcd.
func (client Client) List(ctx context.Context, urls []string) (found []Listed, err error) {
	err = client.with(ctx, urls, func(c *clientv3.Client) (err error) {
		found, err = list(ctx, c)
		return err
	})
	return found, err
}

func list(ctx context.Context, c *clientv3.Client, options ...clientv3.OpOption) (list []Listed, err error) {
	answer, err := c.MemberList(ctx, options...)
	if err != nil {
		return nil, err
	}
	for _, m := range answer.Members {
		list = append(list, Listed{ID: m.ID, Name: m.Name, PeerURL: strings.Join(m.PeerURLs, ","),
			Learner: m.IsLearner})
	}
	return list, nil
}

// Do implements Etcd.
func (client Client) Do(ctx context.Context, urls []string, a plan.Action) error {
	return client.with(ctx, urls, func(c *clientv3.Client) (err error) {
		switch a.Do {
		case plan.AddLearner:
			_, err = c.MemberAddAsLearner(ctx, []string{a.URL})
		case plan.Promote:
			_, err = c.MemberPromote(ctx, a.ID)
		case plan.Remove:
			_, err = c.MemberRemove(ctx, a.ID)
		case plan.Readdress:
			_, err = c.MemberUpdate(ctx, a.ID, []string{a.URL})
		case plan.MoveLeader:
			_, err = c.MoveLeader(ctx, a.ID)
		case plan.Downgrade:
			_, err = c.Downgrade(ctx, clientv3.DowngradeEnable, a.Version.String())
		case plan.CancelDowngrade:
			_, err = c.Downgrade(ctx, clientv3.DowngradeCancel, "")
		case plan.Compact:
			err = compact(ctx, c, urls[0])
		case plan.Defragment:
			_, err = c.Defragment(ctx, urls[0])
		case plan.Disarm:
			_, err = c.AlarmDisarm(ctx, &clientv3.AlarmMember{}) // of all members
		default:
			err = fmt.Errorf("%s is no action on etcd", a.Do)
		}
		return err
	})
}

// compact drops all revisions but the newest one, and defragments the member that was asked.
func compact(ctx context.Context, c *clientv3.Client, url string) error {
	newest, err := c.Get(ctx, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	_, err = c.Compact(ctx, newest.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	_, err = c.Defragment(ctx, url)
	return err
}

// notYet are the answers of etcd that a later request does not get.
var notYet = []error{rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted,
	rpctypes.ErrTooManyLearners, rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout,
	rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost}

// with runs a function with a client, and marks what etcd answers for the time being.
func (client Client) with(ctx context.Context, urls []string, f func(c *clientv3.Client) error) error {
	c, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: urls, Logger: zap.NewNop(), TLS: client.TLS,
		MaxCallRecvMsgSize: math.MaxInt32})
	if err != nil {
		return err
	}
	defer c.Close()
	err = f(c)
	var answer rpctypes.EtcdError
	if errors.As(err, &answer) {
		for _, later := range notYet {
			if answer.Error() == later.Error() {
				return fmt.Errorf("%w: %w", ErrNotYet, err)
			}
		}
	}
	return err
}
