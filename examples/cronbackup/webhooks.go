package main

import (
	"context"
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/api/v1alpha1"
	"github.com/thermostat-go/thermostat/reconcile/serve"
	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

// handlers are the webhooks by their paths, which deploy/webhooks.yaml and deploy/conversion.yaml have, too.
func handlers() map[string]*webhook.Handler {
	return map[string]*webhook.Handler{
		"/convert": webhook.Conversions(
			webhook.Convert(v1alpha1.GroupVersion, v1.GroupVersion, v1alpha1.ToV1),
			webhook.Convert(v1.GroupVersion, v1alpha1.GroupVersion, v1alpha1.FromV1)),
		"/default":  webhook.Default(v1.GroupVersion, fill),
		"/validate": webhook.Validate(v1.GroupVersion, check).AllowOldInvalid(),
	}
}

// fill lets backups without a schedule start once a day, not all at the same minute.
func fill(_ context.Context, a *webhook.Admission[*v1.CronBackup]) error {
	if a.Object.Spec.Schedule == "" {
		h := fnv.New32a()
		_, _ = fmt.Fprint(h, a.Request.Namespace, "/", a.Request.Name) // never fails
		minute := h.Sum32() % (24 * 60)
		a.Object.Spec.Schedule = fmt.Sprintf("%d %d * * *", minute%60, minute/60)
	}
	return nil
}

// check says what is wrong with a CronBackup that its definition lets pass.
func check(_ context.Context, a *webhook.Admission[*v1.CronBackup]) (wrong field.ErrorList, err error) {
	if a.Object == nil || a.Object.DeletionTimestamp != nil {
		return nil, nil // what is wrong must not keep it from going
	}
	if skip, ok := a.Object.Annotations[v1.SkipCleanup]; ok && skip != "true" && skip != "false" {
		wrong = append(wrong, field.NotSupported(field.NewPath("metadata", "annotations").Key(v1.SkipCleanup), skip,
			[]string{"true", "false"}))
	}
	if is := a.Object.Spec.RetentionDays; a.Old != nil && is < a.Old.Spec.RetentionDays {
		a.Warn("backups that are older than %d days will be deleted", is)
	}
	return wrong, nil
}

// webhooks makes the server of the webhooks.
func webhooks(base *rest.Config, o options, metrics webhook.Recorder) (*webhook.Server, error) {
	opts := webhook.Options{Address: o.webhookAddress, Handlers: handlers(), Metrics: metrics}
	if o.certificate != "" {
		var err error
		if opts.TLS, err = serve.TLSFromFiles(o.certificate+"/tls.crt", o.certificate+"/tls.key"); err != nil {
			return nil, err
		}
		return webhook.New(opts)
	}
	opts.Certificates = &webhook.Certificates{
		REST: base, Secret: types.NamespacedName{Namespace: name, Name: name + "-webhooks"}, Hosts: o.webhookHosts,
		Mutating: []string{name}, Validating: []string{name}, CRDs: []string{"cronbackups." + v1.GroupVersion.Group},
		Lifetimes: o.lifetimes,
	}
	return webhook.New(opts)
}
