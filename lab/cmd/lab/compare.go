package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"warmroute/internal/cli"
	"warmroute/lab/cli/compare"
	"warmroute/lab/simulator"
)

func compareCommand(ctx context.Context, args []string, std cli.Stdio) error {
	o := compare.Options{Progress: std.Err}
	var file, workloads, policies, seeds string
	err := flags(std, "compare", args, func(fs *flag.FlagSet) {
		configFlag(&file)(fs)
		fs.StringVar(&workloads, "workloads", strings.Join(simulator.WorkloadNames, ","), "`names` of workloads")
		fs.StringVar(&policies, "policies", strings.Join(compare.Rivals, ","), "`names` of policies to compare with")
		fs.StringVar(&seeds, "seeds", "1,2,3", "`numbers` from which the requests are drawn")
		fs.Float64Var(&o.Share, "share", 1, "`part` of each cell's requests, for a quick look")
		fs.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "`cells` at a time")
		fs.BoolVar(&o.JSON, "json", false, "one line for each run alone, without the table")
	})
	if err != nil {
		return err
	}
	for s := range strings.SplitSeq(seeds, ",") {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("-seeds: %q is not a number", s)
		}
		o.Seeds = append(o.Seeds, n)
	}
	o.Workloads, o.Rivals = strings.Split(workloads, ","), strings.Split(policies, ",")
	if o.Policy, err = policyOf(file); err != nil {
		return err
	}
	return compare.Run(ctx, std.Out, o)
}
