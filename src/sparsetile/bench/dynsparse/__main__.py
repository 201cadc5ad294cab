import sys
from pathlib import Path
from sparsetile.bench.dynsparse._experiment import train
if __name__ == "__main__":
    folder=Path(sys.argv[1]); folder.mkdir(parents=True,exist_ok=True)
    train(folder, sys.argv[2], None, int(sys.argv[3]), methods=sys.argv[4].split(",") if len(sys.argv)>4 else ())
