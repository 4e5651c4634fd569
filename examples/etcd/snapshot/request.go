package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// scheduleLabel is on the EtcdBackups of a schedule, and has its name.
const scheduleLabel = "etcd.example.com/schedule"

// schedule is what a pod of examples/cronbackup finds in its environment.
type schedule struct {
	namespace, name string // of the CronBackup
	pod             string
	cluster         string
	days            int32
	backups         *informer.Resource[*v1.EtcdBackup]
}

func newSchedule(o options) (s schedule, err error) {
	var ok bool
	if s.namespace, s.name, ok = strings.Cut(os.Getenv("BACKUP"), "/"); !ok {
		return s, fmt.Errorf("the variable BACKUP is %q, and not NAMESPACE/NAME", os.Getenv("BACKUP"))
	}
	s.pod, s.cluster = os.Getenv("HOSTNAME"), os.Getenv("TARGET_DATABASE")
	days, err := strconv.ParseInt(os.Getenv("RETENTION_DAYS"), 10, 32)
	if err != nil {
		return s, fmt.Errorf("the variable RETENTION_DAYS: %w", err)
	}
	s.days = int32(days)
	s.backups, err = informer.NewResource[*v1.EtcdBackup](&rest.Config{
		Host: "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"),
			os.Getenv("KUBERNETES_SERVICE_PORT")),
		BearerTokenFile: filepath.Join(o.account, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(o.account, "ca.crt")},
	}, v1.GroupVersion.WithResource("etcdbackups"), informer.ResourceOptions{})
	if err != nil {
		return s, err
	}
	s.backups = s.backups.In(s.namespace)
	return s, nil
}

// request makes an EtcdBackup with the name of its pod, and waits until it is complete.
func request(ctx context.Context, o options) error {
	s, err := newSchedule(o)
	if err != nil {
		return err
	}
	if s.pod == "" || s.cluster == "" {
		return errors.New("request needs the variables HOSTNAME and TARGET_DATABASE")
	}
	_, err = s.backups.Create(ctx, &v1.EtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Name: s.pod, Labels: map[string]string{scheduleLabel: s.name}},
		Spec:       v1.EtcdBackupSpec{Cluster: s.cluster, Claim: o.claim, RetentionDays: s.days},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return eachSecond(ctx, func() (bool, error) {
		now, err := s.backups.Get(ctx, s.pod, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		complete, _ := objects.FindCondition(now.Status.Conditions, v1.Complete)
		if now.Status.Finished != nil && complete.Status != metav1.ConditionTrue {
			return false, fmt.Errorf("EtcdBackup %s: %s: %s", s.pod, complete.Reason, complete.Message)
		}
		return complete.Status == metav1.ConditionTrue, nil
	})
}

// forget deletes all EtcdBackups of the schedule, and waits until they and their files are gone.
func forget(ctx context.Context, o options) error {
	s, err := newSchedule(o)
	if err != nil {
		return err
	}
	return eachSecond(ctx, func() (bool, error) {
		list, err := s.backups.List(ctx, metav1.ListOptions{LabelSelector: scheduleLabel + "=" + s.name})
		if err != nil {
			return false, err
		}
		for _, b := range list.Items {
			if b.DeletionTimestamp != nil {
				continue
			}
			if err := s.backups.Delete(ctx, b.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return len(list.Items) == 0, nil
	})
}

// eachSecond calls a function until it returns true or an error.
func eachSecond(ctx context.Context, f func() (bool, error)) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if done, err := f(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
