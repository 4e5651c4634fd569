package plan_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/program"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// upgrade is the program: it changes an image, and a password.
func upgrade(ctx context.Context, cfg *rest.Config) error {
	c := kubernetes.NewForConfigOrDie(cfg)
	web, err := c.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	web.Spec.Template.Spec.Containers[0].Image = "web:2"
	if _, err := c.AppsV1().Deployments("default").Update(ctx, web, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = c.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"password": "hunter2"},
	}, metav1.CreateOptions{})
	return err
}

// The cluster is one in memory here; for one that is real, cfg comes from a kubeconfig.
func Example() {
	cluster, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	cfg, ctx := cluster.Config(), context.Background()
	labels := map[string]string{"app": "web"}
	deployments := kubernetes.NewForConfigOrDie(cfg).AppsV1().Deployments("default")
	web, err := deployments.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}}}, metav1.CreateOptions{})
	if err != nil {
		panic(err)
	}
	web.Status.Replicas = 1
	if _, err := deployments.UpdateStatus(ctx, web, metav1.UpdateOptions{}); err != nil {
		panic(err)
	}
	written := cluster.Version()

	report, err := plan.Run(ctx, cfg, upgrade, plan.RunOptions{})
	if err != nil {
		panic(err)
	}
	if err := report.WriteText(os.Stdout); err != nil {
		panic(err)
	}
	fmt.Println("\nwrites to the cluster:", cluster.Version()-written)
	// Output:
	// a program on a fork of http://in-memory; still world; done after 10s of quiet; ended after 5m0s
	// 2 changes in 1 wave, 1 pod restarted or ended
	//
	// Wave 1
	//   update Deployment default/web (plan.test)
	//       RESTARTS 1 pod: spec.template.spec.containers[web].image
	//       spec.template.spec.containers[web].image: "web:1" -> "web:2"
	//   create Secret default/password (plan.test)
	//       data: (not shown)
	//       type: "Opaque"
	//
	// Whether the program was connected to something else
	//   nobody has looked: the program is a function of the process that plans
	//
	// writes to the cluster: 0
}

// A program with the flag -plan, which here is set.
func ExampleFlag() {
	cluster, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	run := func(ctx context.Context, cfg *rest.Config) error {
		fmt.Println("on a fork:", program.Planned(ctx))
		_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{})
		return err
	}

	flags := flag.NewFlagSet("operator", flag.ExitOnError)
	planned := plan.Flag(flags, plan.RunOptions{})
	if err := flags.Parse([]string{"-plan=text"}); err != nil {
		panic(err)
	}
	err = planned(run)(context.Background(), cluster.Config()) // which program.Main does
	var exit interface{ ProgramStatus() int }
	if errors.As(err, &exit) {
		fmt.Println("\nexit status", exit.ProgramStatus())
	}
	// Output:
	// on a fork: true
	// a program on a fork of http://in-memory; still world; done after 10s of quiet; ended after 5m0s
	// 1 change in 1 wave, 0 pods restarted or ended
	//
	// Wave 1
	//   create ConfigMap default/settings (plan.test)
	//
	// Whether the program was connected to something else
	//   nobody has looked: the program is a function of the process that plans
	//
	// exit status 2
}
