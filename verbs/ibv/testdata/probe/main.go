// Probe prints what ibv.New answers; the tests build it in different ways.
package main

import (
	"errors"
	"fmt"
	"os"

	"mover/verbs/ibv"
)

func main() {
	_, err := ibv.New(ibv.Config{Library: os.Args[1]})
	fmt.Println(errors.Is(err, ibv.ErrUnavailable), err)
	infos, err := ibv.HostDevices(os.Args[2])
	fmt.Println(len(infos), err)
}
